#include "shell/graphs/workflow_graph.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "shell/graphs/layers.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

using ArrowKind = GraphArrow::Kind;

std::string StepOf(const std::string& value) {
  const auto dot = value.find('.');
  return dot == std::string::npos ? "" : value.substr(0, dot);
}

std::string NoteOf(const proto::WorkflowStep& step) {
  std::vector<std::string> notes;
  if (step.has_for_each()) notes.push_back(Cat("for each ", step.for_each().input()));
  if (step.has_when()) notes.push_back(Cat("when ", step.when().value()));
  if (step.has_retries()) notes.push_back(Cat(step.retries(), " retries"));
  if (step.durable() == proto::DURABLE_BYTES) notes.emplace_back("written");
  return absl::StrJoin(notes, ", ");
}

StepState StateOf(const proto::CommitStep& step) {
  switch (step.end()) {
    case proto::STEP_SKIPPED:
      return StepState::kSkipped;
    case proto::STEP_FAILED:
      return StepState::kFailed;
    default:
      return StepState::kCommitted;
  }
}

// Gathers the arrows to one step, and what it reads in words.
class Reads {
 public:
  Reads(const std::map<std::string, std::size_t>& index, WorkflowGraph& graph, std::size_t to)
      : index_(index), graph_(graph), to_(to) {}

  void Add(const proto::Binding& binding, ArrowKind kind, const std::string& how) {
    Value(binding.value(), kind, how);
    for (const auto& value : binding.fallbacks())
      Value(value, kind == ArrowKind::kInput ? ArrowKind::kFallback : kind, Cat(how, "else "));
  }

 private:
  void Value(const std::string& value, ArrowKind kind, const std::string& how) {
    const auto step = StepOf(value);
    const auto text = Cat(how, step.empty() ? value : step);
    auto& reads = graph_.steps[to_].reads;
    if (std::find(reads.begin(), reads.end(), text) == reads.end()) reads.push_back(text);
    const auto from = index_.find(step);
    if (from == index_.end()) return;
    const bool known = std::any_of(graph_.arrows.begin(), graph_.arrows.end(), [&](const GraphArrow& arrow) {
      return arrow.from == from->second && arrow.to == to_ && arrow.kind == kind;
    });
    if (!known) graph_.arrows.push_back({from->second, to_, kind});
  }

  const std::map<std::string, std::size_t>& index_;
  WorkflowGraph& graph_;
  const std::size_t to_;
};

void AddStates(const proto::RunRecord& run, WorkflowGraph& graph) {
  std::map<std::string, StepState> ended;
  for (const auto& step : run.steps()) ended[step.step()] = StateOf(step);
  for (auto& step : graph.steps) {
    const auto end = ended.find(step.name);
    step.state = end == ended.end() ? StepState::kRuns : end->second;
  }
  const bool over = run.state() != proto::RUN_RUNNING && run.state() != proto::RUN_PENDING;
  std::set<std::size_t> waiting;
  for (const auto& arrow : graph.arrows) {
    const auto from = graph.steps[arrow.from].state;
    if (from == StepState::kRuns && arrow.kind != ArrowKind::kFallback) waiting.insert(arrow.to);
  }
  for (std::size_t i = 0; i < graph.steps.size(); ++i)
    if (graph.steps[i].state == StepState::kRuns && (over || waiting.contains(i)))
      graph.steps[i].state = StepState::kWaits;
}

const char* NameOf(StepState state) {
  switch (state) {
    case StepState::kWaits:
      return "waits";
    case StepState::kRuns:
      return "runs";
    case StepState::kCommitted:
      return "committed";
    case StepState::kSkipped:
      return "skipped";
    case StepState::kFailed:
      return "failed";
    default:
      return "-";
  }
}

Colour ColourOf(StepState state) {
  switch (state) {
    case StepState::kRuns:
      return Colour::kCyan;
    case StepState::kCommitted:
      return Colour::kGreen;
    case StepState::kSkipped:
      return Colour::kYellow;
    case StepState::kFailed:
      return Colour::kRed;
    default:
      return Colour::kPlain;
  }
}

Layers LayersOf(const WorkflowGraph& graph) {
  std::vector<std::pair<std::size_t, std::size_t>> arrows;
  for (const auto& arrow : graph.arrows) arrows.emplace_back(arrow.from, arrow.to);
  return LayOut(graph.steps.size(), arrows);
}

// --- SVG ---

constexpr int kBoxWidth = 190;
constexpr int kBoxHeight = 58;
constexpr int kColumnGap = 70;
constexpr int kRowGap = 22;
constexpr int kMargin = 20;
constexpr int kTitle = 30;
constexpr std::size_t kLongestLabel = 28;

std::string EscapedLabel(const std::string& text) {
  std::string out;
  for (const char c : Shorten(Printable(text), kLongestLabel)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

const char* FillOf(StepState state) {
  switch (state) {
    case StepState::kRuns:
      return "#d4eefc";
    case StepState::kCommitted:
      return "#d8f2d8";
    case StepState::kSkipped:
      return "#eeeeee";
    case StepState::kFailed:
      return "#fbd9d9";
    default:
      return "#ffffff";
  }
}

const char* StrokeOf(ArrowKind kind) {
  switch (kind) {
    case ArrowKind::kFallback:
      return "stroke=\"#888\" stroke-dasharray=\"6 3\"";
    case ArrowKind::kCondition:
      return "stroke=\"#2a6fb0\" stroke-dasharray=\"2 3\"";
    case ArrowKind::kOnError:
      return "stroke=\"#c03030\" stroke-dasharray=\"6 3\"";
    default:
      return "stroke=\"#333\"";
  }
}

struct Point {
  int x = 0;
  int y = 0;
};

std::string BoxSvg(const GraphStep& step, Point at) {
  const int middle = at.x + kBoxWidth / 2;
  auto out = Cat("<rect x=\"", at.x, "\" y=\"", at.y, "\" width=\"", kBoxWidth, "\" height=\"", kBoxHeight,
                 "\" rx=\"6\" fill=\"", FillOf(step.state), "\" stroke=\"#333\"/>\n");
  const auto line = [&](int y, const char* look, const std::string& text) {
    Append(&out, "<text x=\"", middle, "\" y=\"", at.y + y, "\" text-anchor=\"middle\" ", look, ">",
           EscapedLabel(text), "</text>\n");
  };
  line(18, "font-weight=\"bold\"", step.name);
  line(33, "fill=\"#444\"", step.calls);
  const auto state = step.state == StepState::kUnknown ? std::string() : std::string(NameOf(step.state));
  const auto note = state.empty() || step.note.empty() ? Cat(state, step.note) : Cat(state, "; ", step.note);
  if (!note.empty()) line(49, "font-size=\"10\" fill=\"#666\"", note);
  return out;
}

}  // namespace

WorkflowGraph GraphOf(const proto::WorkflowSpec& spec, const proto::RunRecord* run) {
  WorkflowGraph graph;
  graph.title = Cat(spec.name(), " version ", spec.version());
  std::map<std::string, std::size_t> index;
  for (const auto& step : spec.steps()) {
    index.emplace(step.name(), graph.steps.size());
    graph.steps.push_back(
        {.name = step.name(),
         .calls = step.workflow().empty() ? step.function() : Cat("workflow ", step.workflow()),
         .note = NoteOf(step)});
  }
  for (int i = 0; i < spec.steps_size(); ++i) {
    Reads reads(index, graph, static_cast<std::size_t>(i));
    for (const auto& input : spec.steps(i).inputs()) reads.Add(input, ArrowKind::kInput, "");
    if (spec.steps(i).has_when()) reads.Add(spec.steps(i).when(), ArrowKind::kCondition, "when ");
  }
  for (const auto& step : spec.steps()) {
    const auto stand_in = index.find(step.on_error().step());
    if (stand_in == index.end()) continue;
    graph.arrows.push_back({index.at(step.name()), stand_in->second, ArrowKind::kOnError});
    graph.steps[stand_in->second].reads.push_back(Cat("on error of ", step.name()));
  }
  for (const auto& output : spec.outputs()) {
    auto text = Cat(output.tensor(), ": ", output.value());
    for (const auto& value : output.fallbacks()) Append(&text, ", else ", value);
    graph.outputs.push_back(std::move(text));
  }
  if (run != nullptr) {
    Append(&graph.title, ", run ", run->start().run());
    AddStates(*run, graph);
  }
  return graph;
}

std::string GraphText(const WorkflowGraph& graph, const Style& style) {
  auto out = style.Paint(Printable(graph.title), Colour::kBold) + "\n";
  const bool states = !graph.steps.empty() && graph.steps.front().state != StepState::kUnknown;
  std::vector<std::string> headers = {">", "STEP", "CALLS", "READS", "NOTE"};
  if (states) headers.emplace_back("STATE");
  Table table(headers);
  const auto layers = LayersOf(graph);
  for (std::size_t column = 0; column < layers.columns.size(); ++column) {
    bool first = true;
    for (const std::size_t node : layers.columns[column]) {
      const auto& step = graph.steps[node];
      std::vector<Cell> row = {first ? Cat(column + 1) : "", step.name, step.calls,
                               Cat("<- ", absl::StrJoin(step.reads, ", ")), step.note};
      if (states) row.emplace_back(NameOf(step.state), ColourOf(step.state));
      table.Add(std::move(row));
      first = false;
    }
  }
  out += table.Render(style);
  for (const auto& output : graph.outputs) Append(&out, "output  ", Printable(output), "\n");
  return out;
}

std::string GraphSvg(const WorkflowGraph& graph) {
  const auto layers = LayersOf(graph);
  std::size_t tallest = 1;
  for (const auto& column : layers.columns) tallest = std::max(tallest, column.size());
  const auto columns = static_cast<int>(std::max<std::size_t>(layers.columns.size(), 1));
  const auto rows = static_cast<int>(tallest);
  std::vector<Point> places(graph.steps.size());
  for (std::size_t column = 0; column < layers.columns.size(); ++column) {
    const auto& nodes = layers.columns[column];
    // A column that is shorter than others stands in the middle.
    const int above = (rows - static_cast<int>(nodes.size())) * (kBoxHeight + kRowGap) / 2;
    for (std::size_t row = 0; row < nodes.size(); ++row)
      places[nodes[row]] = {kMargin + static_cast<int>(column) * (kBoxWidth + kColumnGap),
                            kMargin + kTitle + above + static_cast<int>(row) * (kBoxHeight + kRowGap)};
  }
  const int width = 2 * kMargin + columns * kBoxWidth + (columns - 1) * kColumnGap;
  const int height = 2 * kMargin + kTitle + rows * kBoxHeight + (rows - 1) * kRowGap;
  auto out =
      Cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
          "\" font-family=\"sans-serif\" font-size=\"12\">\n",
          "<defs><marker id=\"tip\" markerWidth=\"9\" markerHeight=\"8\" refX=\"8\" refY=\"4\" "
          "orient=\"auto\"><path d=\"M0,0 L9,4 L0,8 z\" fill=\"#333\"/></marker></defs>\n",
          "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", "<text x=\"", kMargin, "\" y=\"",
          kMargin + 10, "\" font-size=\"15\" font-weight=\"bold\">", EscapedLabel(graph.title), "</text>\n");
  for (const auto& arrow : graph.arrows) {
    const Point from{places[arrow.from].x + kBoxWidth, places[arrow.from].y + kBoxHeight / 2};
    const Point to{places[arrow.to].x, places[arrow.to].y + kBoxHeight / 2};
    const int bend = kColumnGap / 2;
    Append(&out, "<path d=\"M", from.x, ",", from.y, " C", from.x + bend, ",", from.y, " ", to.x - bend, ",",
           to.y, " ", to.x, ",", to.y, "\" fill=\"none\" ", StrokeOf(arrow.kind),
           " marker-end=\"url(#tip)\"/>\n");
  }
  for (std::size_t i = 0; i < graph.steps.size(); ++i) out += BoxSvg(graph.steps[i], places[i]);
  return out + "</svg>\n";
}

}  // namespace troupe::shell
