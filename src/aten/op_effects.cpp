#include "aten/op_effects.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace precast::aten {
namespace {

using Index = std::uint32_t;

/// Visits the annotation of an argument and those of its elements: `Tensor(a!)[]` carries its own on the element.
template <class Visit>
void visit_annotations(const c10::AliasInfo* info, const Visit& visit) {
  if (info == nullptr) return;
  visit(*info);
  for (const c10::AliasInfo& contained : info->containedTypes()) visit_annotations(&contained, visit);
}

bool says_write(const c10::Argument& argument) {
  bool write = false;
  visit_annotations(argument.alias_info(), [&](const c10::AliasInfo& info) { write = write || info.isWrite(); });
  return write;
}

std::vector<c10::Symbol> alias_sets(const c10::Argument& argument) {
  std::vector<c10::Symbol> sets;
  visit_annotations(argument.alias_info(), [&](const c10::AliasInfo& info) {
    sets.insert(sets.end(), info.beforeSets().begin(), info.beforeSets().end());
  });
  return sets;
}

/// Operators that update running statistics when a flag is set, with no annotation.
struct HiddenWrite {
  std::string_view op;
  std::string_view flag;  ///< Empty: always.
};
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::native_batch_norm", "training"},
    HiddenWrite{"aten::cudnn_batch_norm", "training"},
    HiddenWrite{"aten::miopen_batch_norm", "training"},
    HiddenWrite{"aten::batch_norm", "training"},
    HiddenWrite{"aten::_batch_norm_impl_index", "training"},
    HiddenWrite{"aten::instance_norm", "use_input_stats"},
    HiddenWrite{"aten::batch_norm_update_stats", ""},
    HiddenWrite{"aten::batch_norm_gather_stats", ""},
    HiddenWrite{"aten::batch_norm_gather_stats_with_counts", ""},
};

bool writes_running_statistics(const c10::FunctionSchema& schema, const std::function<bool(std::size_t)>& is_false) {
  const auto entry = std::ranges::find(kHiddenWrites, std::string_view(schema.name()), &HiddenWrite::op);
  if (entry == kHiddenWrites.end()) return false;
  if (entry->flag.empty()) return true;
  const auto flag = schema.argumentIndexWithName(entry->flag);
  return !flag || !is_false(static_cast<std::size_t>(*flag));
}

/// Returns its argument's memory with no annotation.
constexpr std::array<std::string_view, 3> kHiddenViews = {"aten::_unsafe_view", "aten::dropout", "aten::feature_dropout"};

}  // namespace

std::vector<Index> written_arguments(const c10::FunctionSchema& schema, const std::function<bool(std::size_t)>& is_false) {
  const bool statistics = writes_running_statistics(schema, is_false);
  std::vector<Index> written;
  for (Index i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (says_write(argument) || (statistics && (argument.name() == "running_mean" || argument.name() == "running_var")))
      written.push_back(i);
  }
  return written;
}

std::vector<Index> aliased_arguments(const c10::FunctionSchema& schema, const c10::Argument& returned) {
  if (std::ranges::find(kHiddenViews, std::string_view(schema.name())) != kHiddenViews.end()) return {0};
  const std::vector<c10::Symbol> sets = alias_sets(returned);
  std::vector<Index> aliased;
  for (Index i = 0; i < schema.arguments().size(); ++i) {
    const std::vector<c10::Symbol> argument_sets = alias_sets(schema.arguments()[i]);
    const auto shared = [&](c10::Symbol set) { return std::ranges::find(argument_sets, set) != argument_sets.end(); };
    if (std::ranges::any_of(sets, shared)) aliased.push_back(i);
  }
  return aliased;
}

}  // namespace precast::aten
