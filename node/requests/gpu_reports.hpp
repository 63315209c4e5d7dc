// GPU REPORTS: what grants tell routers that name GPUs: how each GPU of this node stands, and what models cost on it. A
// router is told of a GPU again when something has changed for it there, and of a model when an estimate may have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "node/names.hpp"
#include "proto/request.pb.h"

namespace troupe::node {

struct Parts;

class GpuReports {
 public:
  explicit GpuReports(Parts& parts) : parts_(parts) {}

  // The router names GPUs, and is told of everything with its next grant.
  void Add(std::uint64_t router);
  void Forget(std::uint64_t router) { routers_.erase(router); }
  [[nodiscard]] bool Knows(std::uint64_t router) const { return routers_.contains(router); }
  [[nodiscard]] bool empty() const { return routers_.empty(); }  // no router names GPUs
  // All of them have forgotten what they were told.
  void TellAnew();
  void CostChanged(const ModelNumber& model);
  // Puts into the router's grant what the router has to be told. The router names GPUs (Knows).
  void Fill(std::uint64_t router, proto::CreditGrant& grant);

 private:
  struct Told {
    std::vector<std::string> gpus{};             // each as it was told last, serialized; "": not yet
    std::map<std::string, ModelNumber> costs{};  // to be told, by the names of the models
  };
  [[nodiscard]] Told Nothing() const;
  [[nodiscard]] proto::GpuStanding StandingOf(std::uint32_t gpu, std::uint64_t router) const;
  void AddCosts(const ModelNumber& model, proto::CreditGrant& grant) const;

  Parts& parts_;
  std::map<std::uint64_t, Told> routers_;
};

}  // namespace troupe::node
