// The node controller's class, private to its sources: node_controller.cpp (requests), node_orders.cpp (what
// was decided, as orders), node_routers.cpp (routers), node_swaps.cpp (how models come, loans between GPUs),
// node_models.cpp (adoption and plans), node_trials.cpp (what models cost), node_lost.cpp (what dead workers
// held), node_copies.cpp (host copies),
// node_remembered.cpp (what it adopts again by itself), node_runtimes.cpp (whom workers serve),
// node_states.cpp (what functions keep on the device), node_workers.cpp (executors, and what others are
// told), node_view.cpp (what people see). Contract: actors/interfaces/node_controller.hpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/member/member_tie.hpp"
#include "actors/node/declared_states.hpp"
#include "actors/node/demand_count.hpp"
#include "actors/node/event_journal.hpp"
#include "actors/node/held_models.hpp"
#include "actors/node/loans.hpp"
#include "actors/node/lost_models.hpp"
#include "actors/node/node_controller.hpp"
#include "actors/node/orders.hpp"
#include "actors/node/prepare_line.hpp"
#include "actors/node/remote_inputs.hpp"
#include "actors/node/router_links.hpp"
#include "actors/node/served_models.hpp"
#include "actors/node/state_store.hpp"
#include "actors/node/swap_book.hpp"
#include "actors/node/trial_line.hpp"
#include "actors/node/unread_outputs.hpp"
#include "cluster/cluster_view.hpp"
#include "node/models/addresses.hpp"
#include "node/models/cache_table.hpp"
#include "node/runtimes/isolation.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

using ControllerSelf = NodeControllerActor::extend<Hears<proto::Tick>, Hears<proto::Continue>,
                                                   Asks<proto::InjectFault, proto::AdminReply>>;
using SubmitPromise = caf::typed_response_promise<proto::SubmitReply>;

// The most that a copy of any of its forms takes of a host region.
[[nodiscard]] Bytes RegionBytesOf(const proto::FunctionRecord& function);

class NodeController : public ControllerSelf::base {
 public:
  NodeController(caf::actor_config& config, NodeOptions options, node::SchedulerPolicies policies,
                 CacheActor cache);
  const char* name() const override { return "node_controller"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  // A request from its arrival until it is answered.
  struct HeldRequest {
    proto::SubmitRequest message;
    SubmitPromise promise;
    Time expiry{};
    bool from_disk = false;  // its model was not in the host region when it came
    bool trial = false;      // of our own: nobody waits, and there is no promise
    bool refill = false;     // a trial that brings back what a dead worker held
    // Of its current dispatch; serial 0: none.
    std::uint64_t serial = 0;
    node::GpuIndex gpu = node::kNoGpu;
    std::uint64_t run_sequence = 0;  // 0: its run was not ordered yet
    bool cancelled = false;          // before that
    Time dispatched{};
    std::uint32_t attempt = 0;
    ModelWas was = ModelWas::kResident;
    proto::WorkerOutcome swap;
    proto::WorkerOutcome run;
    node::RunLimit limit;        // that its run was ordered with
    bool spoiled_state = false;  // its run went well, and what it left could not be kept
  };
  struct HeldGpu {
    ExecutorActor executor;
    proto::ExecutorReport last;
    std::optional<std::string> coming;  // whom its worker was ordered to serve, until it is ready or lost
    PrepareLine plans;
    bool met = false;        // since this daemon began: what an earlier one left there is known
    Time strangers_until{};  // what is unknown then of what its worker has, is evicted
    // Evictions that write states back: what was decided behind them waits, for the room is not there yet.
    std::size_t writing = 0;
    std::vector<std::function<void()>> behind;
    // What its worker said when it was last described, to tell shares of the time since.
    struct {
      Time at{};
      std::int64_t busy_ns = 0;
      std::int64_t link_ns = 0;
      double busy_share = 0;
      double link_share = 0;
    } seen;
  };
  // What a timer is for.
  enum : std::uint32_t {
    kExpire = 1,
    kGrant = 2,
    kCopies = 3,
    kSaveProfiles = 4,
    kGiveBack = 5,
    kStrangers = 6,
    kRemember = 7,
    kSaveAdopted = 8,
    kBroadcasts = 9
  };
  using OnOutcome = std::function<void(proto::WorkerOutcome)>;

  // --- requests (node_controller.cpp; their orders: node_orders.cpp) ---
  SubmitPromise Submit(proto::SubmitRequest& message);
  // Inputs that lie on another host come first: the scheduler learns of the request when they are here.
  void BringInputs(const node::NodeRequest& request);
  void Schedule(const node::NodeRequest& request);
  // Carries out whatever can be decided now, and arms the timer of what expires next.
  void Pump();
  void Handle(const node::Effects& effects);
  void CarryOut(const node::Dispatch& dispatch);
  // Counts it, and where its model was.
  void NoteDispatch(const node::Dispatch& dispatch, HeldRequest& request);
  // Into the book, and an event.
  void NoteSwap(std::uint32_t gpu, SwapDone swap);
  // The orders of a dispatch, when what it evicts is on its way.
  void Start(const node::Dispatch& dispatch, std::uint64_t serial);
  void OrderEviction(node::GpuIndex gpu, const std::string& model);
  void OrderRun(const node::Dispatch& dispatch, std::uint64_t serial);
  void RunGone(const node::Dispatch& dispatch, std::uint64_t serial);
  void EvictModel(node::GpuIndex gpu, const std::string& model, bool with_states);
  void Ran(const node::Dispatch& dispatch, std::uint64_t serial, proto::WorkerOutcome outcome);
  void Ended(const node::Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome outcome);
  // The request, if `serial` is still its dispatch: outcomes of a worker that was lost come too late.
  HeldRequest* Current(const node::RequestId& id, std::uint64_t serial);
  void Finish(const node::Finished& finished);
  void Cancel(const node::RequestId& id);
  void CancelAtWorker(node::GpuIndex gpu, const node::RequestId& id);
  void Release(const node::RequestId& id);
  void ReleaseSlices(node::GpuIndex gpu, const proto::ReleaseOrder& slices);

  // --- swaps, and loans between GPUs (node_swaps.cpp) ---
  // `lent`, `loan`: of a copy from another GPU.
  void OrderSwapIn(const node::Dispatch& dispatch, std::uint64_t serial,
                   const proto::LendOutcome* lent = nullptr, Loans::Ticket loan = 0,
                   const proto::Broadcast* broadcast = nullptr);
  void SwappedIn(const node::Dispatch& dispatch, std::uint64_t serial, ModelWas source,
                 const proto::WorkerOutcome& outcome);
  // A copy that no request waits for.
  void OrderAhead(const node::Dispatch& dispatch);
  void NoteVictims(const node::Dispatch& dispatch);
  void Borrow(const node::Dispatch& dispatch, std::uint64_t serial);
  void Lent(const node::Dispatch& dispatch, std::uint64_t serial, Loans::Ticket loan,
            const proto::WorkerOutcome& outcome);
  void Return(node::GpuIndex lender, std::uint64_t id);
  void BorrowerLost(node::GpuIndex gpu);

  // --- models for several GPUs at once (node_broadcasts.cpp) ---
  struct Gathered {
    node::Dispatch dispatch;
    std::uint64_t serial = 0;
    std::vector<std::function<void()>> behind;
  };
  // Its orders are given with those of the others that join it.
  void AwaitBroadcast(const node::Dispatch& dispatch, std::uint64_t serial);
  // What else a worker is to do with a model waits for the order that brings it. False: nothing is waited
  // for, `then` is not kept.
  bool BehindBroadcast(const node::Dispatch& dispatch, const std::function<void()>& then);
  bool Joins(const Gathered& waiting, const node::Broadcasts::Order& broadcast);
  void SendBroadcasts();
  std::optional<proto::Broadcast> SendBroadcast(const node::Broadcasts::Order& broadcast,
                                                const std::vector<Gathered>& gathered);

  // --- faults on purpose (node_faults.cpp) ---
  absl::Status Inject(const proto::InjectFault& fault);

  // --- orders: every one is answered, also when its worker dies ---
  std::uint64_t Order(node::GpuIndex gpu, proto::WorkerOrder order, OnOutcome then);
  // The same for an order that names a model: its host copy stays at least until the answer, unless it is an
  // eviction, which does not read it.
  std::uint64_t OrderFor(const std::string& model, node::GpuIndex gpu, proto::WorkerOrder order,
                         OnOutcome then);

  // --- routers (node_routers.cpp) ---
  proto::CreditGrant Hello(const proto::RouterHello& hello, const CreditSinkActor& router);
  [[nodiscard]] proto::CreditGrant Grant(std::uint64_t router);
  // Everyone learns the limits that changed, and what is adopted and resident now.
  void GrantAll();
  void ArmGrants();
  void Down(const caf::down_msg& down);
  void OnTick(const proto::Tick& tick);

  // --- models that a worker has and this node does not know (node_strangers.cpp) ---
  Bytes KeepStrangers(node::GpuIndex gpu, const std::string& key);
  void EvictStrangers();
  void SaveStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger);
  void EvictStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger);
  void KeepStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger);
  // What was learned of the models since the last time, if anything.
  void SaveProfiles();

  // --- models (node_models.cpp) ---
  AdoptPromise Adopt(proto::AdoptModel& adopt);
  // Its first host copy is there: it is described and prepared.
  void Placed(const std::string& digest);
  // From then on requests may come for it.
  void DescribeCopy(const std::string& copy, Bytes weights, Bytes activation);
  // Workers that outlived the daemon before us may hold the model already.
  void FindResident(const std::string& digest, const std::string& packed);
  // Makes the plan of the declared shapes, so that the first request finds it ready. False: no worker is up.
  bool Prepare(node::GpuIndex gpu, const std::string& digest);
  void PrepareNext(node::GpuIndex gpu);
  // `life`: the held model's when the order was given.
  void Prepared(node::GpuIndex gpu, const std::string& digest, std::uint64_t life,
                const proto::WorkerOutcome& outcome);
  // Its worker is gone: what was to be prepared there is when another comes.
  void ForgetPlans(node::GpuIndex gpu);
  void Adopted(const std::string& digest);
  void AdoptFailed(const std::string& digest, const absl::Status& status);
  void Disown(const std::string& digest);
  void DisownCopy(const std::string& copy);

  // --- what was adopted before, while no manager says what is to be here (node_remembered.cpp) ---
  void AdoptAgain();
  // A manager is there: what is not adopted yet, and was not told to it, goes.
  void StopRemembering();
  // Something that is to be remembered may have changed.
  void ArmSaveAdopted();
  void SaveAdopted();

  // --- trials (node_trials.cpp) ---
  void AwaitTrial(const std::string& digest);
  void Try();
  bool StartTrial(const std::string& digest, const proto::FunctionRecord& function, bool refill = false);
  bool AddZeros(const proto::TensorSpec& spec, proto::SubmitRequest& message);
  void FreeZeros(const proto::SubmitRequest& message);
  void StopTrial();
  void EndTrial(const node::Finished& finished, const HeldRequest& held);

  // --- what dead workers held (node_lost.cpp) ---
  // Its worker is gone; the scheduler does not know yet.
  void NoteLost(node::GpuIndex gpu);
  void AddLost(const std::string& copy, Bytes bytes, Time last_use);
  void Refill();
  [[nodiscard]] bool HasRoom(const LostModel& lost) const;

  // --- what functions keep on the device (node_states.cpp) ---
  using OnSaved = std::function<void(const absl::Status& status, const std::vector<KeptStatePtr>& images)>;
  // What the manager tells of the cluster.
  void Learn(const proto::ClusterUpdate& update);
  void LearnFunction(const proto::FunctionKey& key);
  void DeclareState(const proto::FunctionRecord& record);
  // What a worker that outlived its daemon holds of this model's functions.
  void RecoverStates(node::GpuIndex gpu, const std::string& digest);
  void RecoverState(node::GpuIndex gpu, const std::string& digest, const std::string& key);
  void Recovered(const std::string& key, node::GpuIndex gpu, absl::StatusOr<KeptStatePtr> image);
  // Its runs may begin when nothing that is known of it can still come.
  void LetRun(const DeclaredState& state);
  void Met(node::GpuIndex gpu);
  void StateLoaded(const std::string& key, absl::StatusOr<KeptStatePtr> image);
  void ForgetState(const std::string& key);
  // The image, or zeros, for a swap-in; whoever holds it keeps its references valid.
  KeptStatePtr AddState(const std::string& key, proto::SwapInOrder& order);
  // `run`: the function whose run has just ended there well; "": all functions whose state is there.
  void WriteBack(node::GpuIndex gpu, const std::string& model, const std::string& run, OnSaved then);
  // Those of the images that came back which are wanted; the worker's slices are released when all are read.
  using Wanted = std::function<bool(const proto::StateImage& image)>;
  void SaveImages(node::GpuIndex gpu, const proto::WorkerOutcome& outcome, const Wanted& wanted,
                  const OnSaved& then);
  void KeepImages(const std::vector<KeptStatePtr>& images);
  void RestoreImages(const std::vector<KeptStatePtr>& images);
  [[nodiscard]] bool HasStates(node::GpuIndex gpu, const std::string& model) const;
  void EvictWithStates(node::GpuIndex gpu, const std::string& model);
  void Written(node::GpuIndex gpu);
  void SaveRun(const node::Dispatch& dispatch, std::uint64_t serial, proto::WorkerOutcome outcome);
  // A run that went well ends as Unavailable, and does not count.
  void NotKept(const node::Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome run,
               const std::string& why);
  void StatesLost(node::GpuIndex gpu);
  struct StateShown {
    std::string model;
    std::string function;
    Bytes bytes;
  };
  void ShowStates(node::GpuIndex gpu, const std::function<void(const StateShown&)>& show);
  void TellStatesStay(const std::string& model);

  // --- host copies (node_copies.cpp) ---
  // Starts what the table decides, and arms its timer.
  void MoveCopies();
  void FetchCopy(const std::string& digest);
  void LoadCopy(const std::string& digest);
  void DropCopy(const std::string& digest);
  void Loaded(const std::string& digest, const absl::StatusOr<proto::HostModel>& host, Duration took);
  void CameBack(const std::string& digest, Bytes bytes, Duration took);
  void CopyFailed(const std::string& digest, const absl::Status& status);

  // --- runtimes (node_runtimes.cpp) ---
  [[nodiscard]] std::string Label(node::GpuIndex gpu) const;
  [[nodiscard]] std::uint32_t DeviceOf(node::GpuIndex gpu) const { return gpu / options_.isolation.runtimes; }
  [[nodiscard]] bool ServesCopy(node::GpuIndex gpu, const std::string& copy) const {
    const auto& runtime = scheduler_.gpus().at(gpu);
    return Up(gpu) && runtime.assigned && runtime.key == node::KeyOf(copy);
  }
  // Null: this node has not heard of it.
  [[nodiscard]] const proto::FunctionRecord* FunctionOf(const proto::SubmitRequest& request) const;
  // NotFound for a function that this node has not heard of.
  absl::StatusOr<std::string> CopyFor(const proto::SubmitRequest& request);
  void OpenCopy(const std::string& copy, const proto::FunctionRecord& function);
  void Reassign(const node::Assignment& order);
  void Starting(const proto::ExecutorReport& report);
  void ArmGiveBack();
  void ShowRuntimes(std::uint32_t index, proto::GpuStatus& status);

  // --- workers (node_workers.cpp) ---
  void StartExecutors();
  static std::string StateName(proto::ExecutorReport::State state);
  [[nodiscard]] bool Up(node::GpuIndex gpu) const {
    return gpus_[gpu].last.state() == proto::ExecutorReport::READY;
  }
  void Executor(const proto::ExecutorReport& report);
  void Tell(const proto::ExecutorReport& report);
  // For the log here, and for the cluster's.
  void Note(const std::string& kind, const std::string& message);
  void WorkerUp(const proto::ExecutorReport& report, Time now);
  void VoidDispatches(node::GpuIndex gpu);
  void UpdateCapacity();
  void Kill(std::uint32_t device);
  proto::DrainReply Drain(bool drain);
  void Joined(const proto::MemberJoined& joined);
  [[nodiscard]] proto::MemberReport Report(const proto::DescribeMember& ask);
  [[nodiscard]] proto::GpuRecord Record(std::uint32_t device) const;
  [[nodiscard]] proto::NodeLoad Load() const;
  caf::typed_response_promise<proto::NodeDescription> Describe();
  // --- what an operator sees (node_view.cpp) ---
  void Show(proto::NodeDescription& node);
  void ShowFunction(const std::string& digest, google::protobuf::RepeatedPtrField<std::string>& functions);
  void ShowModels(std::uint32_t index, proto::GpuStatus& status);
  void ShowWork(std::uint32_t index, proto::GpuStatus& status);
  void ShowRegion(proto::HostRegionStatus& region);
  void ShowShares(std::uint32_t index, const proto::WorkerDescription& worker, proto::GpuStatus& status);
  void AddWorker(node::GpuIndex gpu, proto::WorkerOutcome& outcome, proto::GpuStatus& status);

  const NodeOptions options_;
  CacheActor cache_;
  node::SwapScheduler scheduler_;
  RouterLinks routers_;
  cluster::ClusterView view_;
  MemberTie tie_;
  HeldModels models_;
  ServedModels served_;
  DemandCount demand_;
  node::CacheTable copies_;
  TrialLine trials_;
  LostModels lost_;
  SwapBook swaps_;
  Loans loans_;
  node::Addresses addresses_;
  UnreadOutputs unread_;
  RemoteInputs inputs_;
  DeclaredStates declared_;
  StateStore store_;
  EventJournal journal_;
  PendingCalls calls_;
  std::vector<HeldGpu> gpus_;
  std::map<node::RequestId, HeldRequest> requests_;
  std::uint64_t epoch_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t next_serial_ = 1;
  std::uint64_t saved_costs_ = 0;  // revision
  // Counts up when the models on the GPUs may have changed; 250 ms later routers know all the same.
  std::uint64_t residency_ = 1;
  std::set<std::string> remembered_;                    // copies that this node adopts again by itself
  std::set<std::string> told_;                          // models that the last report for a join named
  std::map<std::string, std::uint64_t> saved_adopted_;  // "name/version" -> revision, as on disk
  bool save_adopted_armed_ = false;
  Time armed_ = Time::max();
  Time copies_armed_ = Time::max();
  Time give_back_armed_ = Time::max();
  std::vector<Gathered> gathered_;
  std::uint64_t meetings_ = 0;
  bool broadcasts_armed_ = false;
  bool grants_armed_ = false;
  bool dirty_ = false;
};

}  // namespace troupe::actors
