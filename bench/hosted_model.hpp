// A model in the host region of a bench's site, with the orders that a measurement gives about it.
#pragma once

#include <string>
#include <vector>

#include "bench/worker_rig.hpp"
#include "proto/element_size.hpp"

namespace troupe::gpu::bench {

// A model whose runs have zeros for inputs. Several may have the same weights: a worker takes each for a
// model of its own.
struct HostedModel {
  HostedModel(Site& site, const std::string& name, const proto::Model& model,
              const proto::RegionRange& weights_range, const std::vector<proto::TensorSpec>& specs)
      : digest(name), weights(weights_range.length()), copy(site.PlaceModel(name, model, weights_range)) {
    run.mutable_run()->set_digest(name);
    prepare.mutable_prepare()->mutable_model()->CopyFrom(copy);
    for (const proto::TensorSpec& spec : specs) {
      *prepare.mutable_prepare()->add_inputs() = spec;
      proto::Tensor& tensor = *run.mutable_run()->add_inputs();
      *tensor.mutable_spec() = spec;
      std::size_t bytes = ElementSize(spec.type());
      for (const auto size : spec.shape()) bytes *= static_cast<std::size_t>(size);
      auto room = Value(site.channel().Reserve(Bytes(bytes)), "input");
      std::memset(room.bytes().data(), 0, bytes);
      *tensor.mutable_data() = room.Commit();
    }
  }
  // The same model under another name, from the same bytes of the host region.
  [[nodiscard]] HostedModel As(const std::string& name) const {
    HostedModel other = *this;
    other.digest = name;
    other.copy.set_digest(name);
    other.run.mutable_run()->set_digest(name);
    *other.prepare.mutable_prepare()->mutable_model() = other.copy;
    return other;
  }

  std::string digest;
  std::size_t weights = 0;
  proto::HostCopy copy;
  proto::WorkerOrder run;
  proto::WorkerOrder prepare;
};

}  // namespace troupe::gpu::bench
