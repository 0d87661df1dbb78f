#include "passes/toy.h"

#include "ir/renumber.h"
#include "ir/visit.h"
#include "passes/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

namespace precast::passes::test {
namespace {

constexpr int kRanks = 2;
constexpr std::uint64_t kGarbage = 0xdeadbeefdeadbeef;

using Tensors = std::vector<ToyTensor>;

std::size_t count(const std::vector<std::int64_t>& shape) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::vector<std::uint64_t> read(const ToyTensor& tensor) {
  const auto begin = tensor.memory->begin() + static_cast<std::ptrdiff_t>(tensor.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(count(tensor.shape))};
}

void write(const ToyTensor& tensor, const std::vector<std::uint64_t>& values) {
  for (std::size_t i = 0; i < count(tensor.shape); ++i) (*tensor.memory)[tensor.offset + i] = values.at(i % values.size());
}

ToyTensor fresh(std::vector<std::int64_t> shape, std::vector<std::uint64_t> values) {
  values.resize(count(shape), kGarbage);
  return {.memory = std::make_shared<std::vector<std::uint64_t>>(std::move(values)), .offset = 0, .shape = std::move(shape)};
}

std::vector<std::uint64_t> add(std::vector<std::uint64_t> a, const std::vector<std::uint64_t>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b.at(i % b.size());
  return a;
}

std::vector<std::uint64_t> times(std::vector<std::uint64_t> a, std::uint64_t factor) {
  for (std::uint64_t& value : a) value *= factor;
  return a;
}

/// Side by side in dimension `dim`.
ToyTensor cat(const Tensors& parts, std::size_t dim) {
  std::vector<std::int64_t> shape = parts.at(0).shape;
  const std::size_t outer = count({shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim)});
  std::vector<std::uint64_t> values;
  for (std::size_t o = 0; o < outer; ++o)
    for (const ToyTensor& part : parts) {
      const auto all = read(part);
      const auto inner = static_cast<std::ptrdiff_t>(all.size() / outer);
      values.insert(values.end(), all.begin() + static_cast<std::ptrdiff_t>(o) * inner,
                    all.begin() + static_cast<std::ptrdiff_t>(o + 1) * inner);
    }
  shape.at(dim) = 0;
  for (const ToyTensor& part : parts) shape[dim] += part.shape.at(dim);
  return fresh(shape, values);
}

ToyTensor index_select(const ToyTensor& from, std::size_t dim, std::uint64_t index) {
  const std::size_t outer = count({from.shape.begin(), from.shape.begin() + static_cast<std::ptrdiff_t>(dim)});
  const auto n = static_cast<std::size_t>(from.shape.at(dim));
  const auto all = read(from);
  const std::size_t inner = all.size() / outer / n;
  std::vector<std::uint64_t> values;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < inner; ++i) values.push_back(all.at((o * n + index) * inner + i));
  std::vector<std::int64_t> shape = from.shape;
  shape[dim] = 1;
  return fresh(shape, values);
}

/// One rank's view of a call's arguments.
class Arguments {
 public:
  Arguments(const ir::Call& call, const std::vector<Tensors>& values) : call_(call), values_(values) {}

  [[nodiscard]] Tensors list(std::size_t i) const {
    Tensors all;
    ir::visit_values(call_.arguments.at(i), [&](ir::ValueId value) {
      const Tensors& tensors = values_.at(value.index);
      all.insert(all.end(), tensors.begin(), tensors.end());
    });
    return all;
  }
  [[nodiscard]] ToyTensor tensor(std::size_t i) const { return list(i).at(0); }
  [[nodiscard]] std::vector<std::uint64_t> data(std::size_t i) const { return read(tensor(i)); }
  [[nodiscard]] std::int64_t integer(std::size_t i) const {
    return i < call_.arguments.size() ? std::get<std::int64_t>(call_.arguments[i].is) : 0;
  }
  [[nodiscard]] std::vector<std::int64_t> integers(std::size_t i) const {
    std::vector<std::int64_t> all;
    for (const ir::Operand& item : std::get<ir::Operand::List>(call_.arguments.at(i).is))
      all.push_back(std::get<std::int64_t>(item.is));
    return all;
  }
  [[nodiscard]] ToyTensor out() const { return values_.at(std::get<ir::ValueId>(call_.keywords.at(0).second.is).index).at(0); }

 private:
  const ir::Call& call_;
  const std::vector<Tensors>& values_;
};

using Local = std::function<Tensors(const Arguments&, std::uint64_t& random_state)>;

const std::map<std::string, Local>& local_operators() {
  static const std::map<std::string, Local> operators = {
      {"toy::add",
       [](const Arguments& a, std::uint64_t&) -> Tensors { return {fresh(a.tensor(0).shape, add(a.data(0), a.data(1)))}; }},
      {"toy::add.out",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         write(a.out(), add(a.data(0), a.data(1)));
         return {a.out()};
       }},
      {"toy::triple",
       [](const Arguments& a, std::uint64_t&) -> Tensors { return {fresh(a.tensor(0).shape, times(a.data(0), 3))}; }},
      {"toy::pair",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         return {fresh(a.tensor(0).shape, times(a.data(0), 5)), fresh(a.tensor(0).shape, times(a.data(0), 7))};
       }},
      {"toy::bump",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         write(a.tensor(1), add(read(a.tensor(1)), a.data(0)));
         return {fresh(a.tensor(0).shape, times(a.data(0), 11))};
       }},
      {"toy::random",
       [](const Arguments& a, std::uint64_t& state) -> Tensors {
         state = state * 6364136223846793005ULL + 1442695040888963407ULL;
         return {fresh(a.tensor(0).shape, add(a.data(0), {state >> 33U}))};
       }},
      {"toy::half",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         ToyTensor half = a.tensor(0);
         half.shape.at(0) /= 2;
         return {half};
       }},
      {"aten::add_",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         write(a.tensor(0), add(a.data(0), a.data(1)));
         return {a.tensor(0)};
       }},
      {"aten::view",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         ToyTensor view = a.tensor(0);
         view.shape = a.integers(1);
         return {view};
       }},
      {"aten::chunk",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         Tensors chunks;
         for (std::int64_t i = 0; i < a.integer(1); ++i) {
           ToyTensor chunk = a.tensor(0);
           chunk.shape.at(0) /= a.integer(1);
           chunk.offset += static_cast<std::size_t>(i) * count(chunk.shape);
           chunks.push_back(chunk);
         }
         return chunks;
       }},
      {"aten::cat",
       [](const Arguments& a, std::uint64_t&) -> Tensors { return {cat(a.list(0), static_cast<std::size_t>(a.integer(1)))}; }},
      {"aten::unflatten.int",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         ToyTensor view = a.tensor(0);
         const auto at = view.shape.begin() + a.integer(1);
         const auto sizes = a.integers(2);
         view.shape.insert(view.shape.erase(at), sizes.begin(), sizes.end());
         return {view};
       }},
      {"aten::index_select",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         return {index_select(a.tensor(0), static_cast<std::size_t>(a.integer(1)), a.data(2).at(0))};
       }},
      {"aten::squeeze.dim",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         ToyTensor view = a.tensor(0);
         view.shape.erase(view.shape.begin() + a.integer(1));
         return {view};
       }},
      {"aten::stack",
       [](const Arguments& a, std::uint64_t&) -> Tensors {
         ToyTensor copy = fresh(a.tensor(0).shape, a.data(0));
         copy.shape.insert(copy.shape.begin() + a.integer(1), 1);
         return {copy};
       }},
  };
  return operators;
}

/// What each rank gets of what each one gives.
std::vector<std::vector<std::uint64_t>> communicate(const std::string& kind, const std::string& op, bool reversed,
                                                    const std::vector<std::vector<std::uint64_t>>& given) {
  const auto place = [&](int rank) { return reversed ? kRanks - 1 - rank : rank; };
  std::vector<std::uint64_t> all(given[0].size(), op == "sum" ? 0 : 1);
  if (kind == "all_gather_into_tensor") {
    all.clear();
    for (int i = 0; i < kRanks; ++i) all.insert(all.end(), given[place(i)].begin(), given[place(i)].end());
  } else {
    for (const auto& one : given)
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = op == "sum" ? all[i] + one[i] : all[i] * (one[i] | 1U);
  }
  std::vector<std::vector<std::uint64_t>> got(kRanks, all);
  if (kind == "reduce_scatter_tensor") {
    const auto block = static_cast<std::ptrdiff_t>(all.size() / kRanks);
    for (int rank = 0; rank < kRanks; ++rank)
      got[rank] = {all.begin() + place(rank) * block, all.begin() + (place(rank) + 1) * block};
  }
  return got;
}

class Machine {
 public:
  Machine(const ir::Program& program, Reads reads)
      : program_(program), reads_(reads), values_(kRanks, std::vector<Tensors>(program.values.size())), random_state_(kRanks) {
    const std::size_t n_lifted = program.metadata.params.size() + program.metadata.buffers.size();
    const std::size_t n_mesh = program.metadata.mesh_inputs.size();
    for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
      random_state_[rank] = rank + 17;
      const auto user = std::make_shared<std::vector<std::uint64_t>>(64);
      std::iota(user->begin(), user->end(), 1000 * (rank + 1));
      for (std::size_t i = 0; i < program.inputs.size(); ++i) {
        const bool is_mesh = i + n_mesh >= program.inputs.size();
        ToyTensor tensor = fresh({4}, {});
        std::iota(tensor.memory->begin(), tensor.memory->end(), 100 * (rank + 1) + 10 * i);
        if (is_mesh) {
          const bool reversed = program.metadata.mesh_inputs[i + n_mesh - program.inputs.size()] == "tp";
          tensor = fresh({}, {reversed ? kRanks - 1 - rank : rank});
        } else if (i >= n_lifted) {
          tensor = {.memory = user, .offset = 2 * i, .shape = {4}};
        }
        inputs_.push_back(tensor);
        values_[rank][program.inputs[i].index] = {tensor};
      }
    }
  }

  Run run() {
    for (const ir::Statement& statement : program_.statements) step(statement);
    Run run{.outcome = {}, .collectives = std::move(collectives_)};
    Tensors seen = inputs_;
    for (const auto& values : values_)
      for (const ir::Operand& output : program_.outputs) {
        const ToyTensor& tensor = values.at(std::get<ir::ValueId>(output.is).index).at(0);
        run.outcome.outputs.push_back(read(tensor));
        run.outcome.shapes.push_back(tensor.shape);
        seen.push_back(tensor);
      }
    for (const ToyTensor& input : inputs_) run.outcome.inputs_after.push_back(*input.memory);
    for (const ToyTensor& a : seen)
      for (const ToyTensor& b : seen) run.outcome.shared.push_back(a.memory == b.memory);
    run.outcome.random_state = random_state_;
    return run;
  }

 private:
  void step(const ir::Statement& statement) {
    const int result = statement.result.index;
    if (const auto* item = std::get_if<ir::GetItem>(&statement.is)) {
      for (auto& values : values_) values[result] = {values.at(item->source.index).at(static_cast<std::size_t>(item->index))};
      return;
    }
    const auto& call = std::get<ir::Call>(statement.is);
    if (is_wait(call)) return wait(call, result);
    if (is_collective(call)) return issue(call, result);
    const std::string name = call.overload.empty() ? call.name : call.name + "." + call.overload;
    for (int rank = 0; rank < kRanks; ++rank)
      values_[rank][result] = local_operators().at(name)(Arguments(call, values_[rank]), random_state_[rank]);
  }

  void issue(const ir::Call& call, int result) {
    std::string kind = call.name.substr(call.name.find("::") + 2);
    const bool coalesced = kind.ends_with("_coalesced");
    if (coalesced) kind.resize(kind.size() - std::string("_coalesced").size());
    const bool in_place = kind == "all_reduce_";
    const auto& group = std::get<std::string>(call.arguments.back().is);
    const std::string op = kind == "all_gather_into_tensor" ? "" : std::get<std::string>(call.arguments.at(1).is);
    std::string log = fmt::format("{} {} {}", kind, op, group);
    for (std::size_t k = 0; k < Arguments(call, values_[0]).list(0).size(); ++k) {
      Tensors sources, results;
      std::vector<std::vector<std::uint64_t>> now;
      for (const auto& values : values_) {
        sources.push_back(Arguments(call, values).list(0).at(k));
        now.push_back(read(sources.back()));
        log += fmt::format(" {}", now.back());
        std::vector<std::int64_t> shape = sources.back().shape;
        if (kind == "all_gather_into_tensor") shape.at(0) *= kRanks;
        if (kind == "reduce_scatter_tensor") shape.at(0) /= kRanks;
        results.push_back(in_place ? sources.back() : fresh(shape, {}));
        if (in_place) write(results.back(), {kGarbage});
      }
      const bool early = in_place || reads_ == Reads::when_issued;
      in_flight_[results[0].memory.get()] = [=, reversed = group == "tp"] {
        auto given = now;
        for (std::size_t rank = 0; !early && rank < kRanks; ++rank) given[rank] = read(sources[rank]);
        const auto got = communicate(in_place ? "all_reduce" : kind, op, reversed, given);
        for (std::size_t rank = 0; rank < kRanks; ++rank) write(results[rank], got[rank]);
      };
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        if (k == 0) values_[rank][result].clear();
        values_[rank][result].push_back(results[rank]);
      }
    }
    collectives_.push_back(log);
  }

  void wait(const ir::Call& call, int result) {
    for (auto& values : values_) values[result] = Arguments(call, values).list(0);
    for (const ToyTensor& tensor : values_[0][result]) {
      const auto flight = in_flight_.find(tensor.memory.get());
      if (flight == in_flight_.end()) continue;
      flight->second();
      in_flight_.erase(flight);
    }
  }

  const ir::Program& program_;
  Reads reads_;
  std::vector<std::vector<Tensors>> values_;  ///< Of each rank.
  std::vector<std::uint64_t> random_state_;
  Tensors inputs_;
  std::map<const void*, std::function<void()>> in_flight_;  ///< By the result's memory on the first rank.
  std::vector<std::string> collectives_;
};

}  // namespace

ir::ValueId Builder::define(const std::string& name, const std::string& note, std::variant<ir::Call, ir::GetItem> is) {
  const ir::ValueId value{static_cast<int>(program.values.size())};
  program.values.push_back({name, note});
  program.statements.push_back({.result = value, .is = std::move(is)});
  return value;
}

ir::ValueId Builder::input(const std::string& name, const std::string& note) {
  program.inputs.push_back({static_cast<int>(program.values.size())});
  program.values.push_back({name, note});
  return program.inputs.back();
}

ir::ValueId Builder::call(const std::string& name, std::vector<ir::Operand> arguments, const std::string& note,
                          std::vector<std::pair<std::string, ir::Operand>> keywords) {
  const std::size_t base = name.find("::") + 2, dot = name.find('.');
  return define(name.substr(base, dot - base), note,
                ir::Call{.name = name.substr(0, dot),
                         .overload = dot == std::string::npos ? "" : name.substr(dot + 1),
                         .arguments = std::move(arguments),
                         .keywords = std::move(keywords)});
}

ir::ValueId Builder::item(ir::ValueId source, std::int64_t index, const std::string& note) {
  return define("getitem", note, ir::GetItem{source, index});
}

ir::ValueId Builder::all_reduce(ir::ValueId value, const std::string& group, const std::string& op, const std::string& note) {
  return call("_c10d_functional::all_reduce", {{value}, {op}, {group}}, note);
}

ir::ValueId Builder::all_gather(ir::ValueId value, const std::string& group, const std::string& note) {
  return call("_c10d_functional::all_gather_into_tensor", {{value}, {std::int64_t{kRanks}}, {group}}, note);
}

ir::ValueId Builder::reduce_scatter(ir::ValueId value, const std::string& group, const std::string& note) {
  return call("_c10d_functional::reduce_scatter_tensor", {{value}, {std::string("sum")}, {std::int64_t{kRanks}}, {group}}, note);
}

ir::ValueId Builder::wait(ir::ValueId value) {
  return call("_c10d_functional::wait_tensor", {{value}}, program.values[value.index].note);
}

ir::Program Builder::returning(std::vector<ir::ValueId> outputs) {
  for (const ir::ValueId output : outputs) program.outputs.push_back({output});
  ir::renumber(program);
  return std::move(program);
}

OperatorEffects toy_effects() {
  const auto is_one_of = [](const ir::Call& call, const std::set<std::string>& names) { return names.contains(call.name); };
  return {.written = [=](const ir::Call& call) -> std::vector<std::uint32_t> {
            if (is_one_of(call, {"toy::bump"})) return {1};
            return {};
          },
          .aliased = [=](const ir::Call& call) -> std::vector<std::uint32_t> {
            if (is_one_of(call, {"toy::half", "aten::view", "aten::chunk", "aten::unflatten", "aten::squeeze"})) return {0};
            return {};
          },
          .keeps_order = [=](const ir::Call& call) { return is_one_of(call, {"toy::random"}); }};
}

std::vector<std::string> operators(const ir::Program& program) {
  std::vector<std::string> names;
  for (const ir::Statement& statement : program.statements) {
    if (const auto* item = std::get_if<ir::GetItem>(&statement.is))
      names.push_back(fmt::format("[{}]", item->index));
    else
      names.push_back(std::get<ir::Call>(statement.is).name.substr(std::get<ir::Call>(statement.is).name.find("::") + 2));
  }
  return names;
}

void expect_valid(const ir::Program& program) {
  std::set<std::string> names;
  for (const ir::Value& value : program.values) EXPECT_TRUE(names.insert(value.name).second) << value.name;
  int n_defined = 0;
  const auto expect_defined = [&](ir::ValueId value) { EXPECT_TRUE(value.index >= 0 && value.index < n_defined) << value.index; };
  for (const ir::ValueId input : program.inputs) EXPECT_EQ(input.index, n_defined++);
  for (const ir::Statement& statement : program.statements) {
    ir::visit_uses(statement, expect_defined);
    EXPECT_EQ(statement.result.index, n_defined++);
  }
  for (const ir::Operand& output : program.outputs) ir::visit_values(output, expect_defined);
  EXPECT_EQ(program.values.size(), static_cast<std::size_t>(n_defined));
}

Run run_toy(const ir::Program& program, Reads reads) {
  return Machine(program, reads).run();
}

}  // namespace precast::passes::test
