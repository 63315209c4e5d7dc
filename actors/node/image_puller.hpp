// IMAGE PULLER: brings the files of states from the node that gave them up, for the cache of the node that takes them over
// (PullImage). A file comes in parts of 64 KiB, as tensors of that size travel: inside the messages. The puller
// checks the length of each part; the state store checks the whole file by the digest that it carries.
// It also tells other nodes of images that they are to have copies of (SendImageCopy), over the same connections.
// UNAVAILABLE: the node cannot be reached; RESOURCE_EXHAUSTED: the file is larger than it may be.
#pragma once

#include <caf/actor_system.hpp>

#include "actors/interfaces/interface.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

using ImagePullerActor =
    Interface<Asks<proto::PullImage, proto::PulledImage>, Asks<proto::SendImageCopy, proto::CopiedImage>>;

struct ImagePullTerms {
  Duration reach_timeout = std::chrono::seconds(2);  // until a node is connected
  Duration part_timeout = std::chrono::seconds(10);  // of one part
  Duration copy_timeout = std::chrono::seconds(10);  // until the other node has a copy
  Duration keep = std::chrono::seconds(5);           // a connection that no file needs
  std::size_t window = 8;                            // parts of one file that are on their way
};

// `directory` outlives the actor.
ImagePullerActor SpawnImagePuller(caf::actor_system& system, ImagePullTerms terms, PeerDirectory& directory);

}  // namespace troupe::actors
