// A mesh of all ranks that run this. Where a row of a table is for another number of ranks it is left out; 1 to 4 are tested.
#include "precast/device_mesh.h"
#include "comm/group_checks.h"
#include "rank_test.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace precast {
namespace {

using rank_test::call_functional;
using rank_test::communicator;
using rank_test::error_on_every_rank;
using rank_test::expect_collectives_among;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Sizes = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

int rank() {
  return communicator().rank();
}
int size() {
  return communicator().size();
}

std::string invalid(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

/// Written down by hand: what each rank sees of a mesh.
struct Place {
  Sizes coordinates;
  std::vector<std::vector<int>> groups;  ///< By dimension.
};
struct Case {
  std::string name;
  Sizes shape;
  std::vector<Place> by_rank;
};

const std::vector<Case> kCases = {
    {"one", {1}, {{{0}, {{0}}}}},
    {"one_by_one", {1, 1}, {{{0, 0}, {{0}, {0}}}}},
    {"pair", {2}, {{{0}, {{0, 1}}}, {{1}, {{0, 1}}}}},
    {"pair_first", {2, 1}, {{{0, 0}, {{0, 1}, {0}}}, {{1, 0}, {{0, 1}, {1}}}}},
    {"row_of_three", {1, 3}, {{{0, 0}, {{0}, {0, 1, 2}}}, {{0, 1}, {{1}, {0, 1, 2}}}, {{0, 2}, {{2}, {0, 1, 2}}}}},
    {"column_of_three", {3, 1}, {{{0, 0}, {{0, 1, 2}, {0}}}, {{1, 0}, {{0, 1, 2}, {1}}}, {{2, 0}, {{0, 1, 2}, {2}}}}},
    {"square",
     {2, 2},
     {{{0, 0}, {{0, 2}, {0, 1}}}, {{0, 1}, {{1, 3}, {0, 1}}}, {{1, 0}, {{0, 2}, {2, 3}}}, {{1, 1}, {{1, 3}, {2, 3}}}}},
    {"cube",
     {2, 1, 2},
     {{{0, 0, 0}, {{0, 2}, {0}, {0, 1}}},
      {{0, 0, 1}, {{1, 3}, {1}, {0, 1}}},
      {{1, 0, 0}, {{0, 2}, {2}, {2, 3}}},
      {{1, 0, 1}, {{1, 3}, {3}, {2, 3}}}}},
};

Names names_for(const Sizes& shape) {
  const Names all = {"a", "b", "c"};
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shape.size())};
}

TEST(DeviceMesh, RanksAreLaidOutRowMajor) {
  for (const Case& expected : kCases) {
    if (static_cast<int>(expected.by_rank.size()) != size()) continue;
    SCOPED_TRACE(expected.name);
    const DeviceMesh mesh(communicator(), expected.shape, names_for(expected.shape), expected.name);
    const Place& here = expected.by_rank[static_cast<std::size_t>(rank())];
    EXPECT_EQ(mesh.size(), size());
    EXPECT_EQ(mesh.shape(), expected.shape);
    ASSERT_EQ(mesh.ndim(), static_cast<int>(here.coordinates.size()));
    for (int d = 0; d < mesh.ndim(); ++d) {
      EXPECT_EQ(mesh.size(d), expected.shape[static_cast<std::size_t>(d)]);
      EXPECT_EQ(mesh.coordinate(d), here.coordinates[static_cast<std::size_t>(d)]);
    }
    for (int other = 0; other < size(); ++other)
      EXPECT_EQ(mesh.rank_at(expected.by_rank[static_cast<std::size_t>(other)].coordinates), other);
  }
}

TEST(DeviceMesh, CollectivesRunAlongEachDimension) {  // C153
  for (const Case& expected : kCases) {
    if (static_cast<int>(expected.by_rank.size()) != size()) continue;
    const DeviceMesh mesh(communicator(), expected.shape, names_for(expected.shape), expected.name);
    const Place& here = expected.by_rank[static_cast<std::size_t>(rank())];
    for (int d = 0; d < mesh.ndim(); ++d) expect_collectives_among(here.groups[static_cast<std::size_t>(d)], mesh.group_name(d));
  }
}

TEST(DeviceMesh, DimensionsOfOtherSizesEachReduceOverTheirOwnGroup) {  // C153
  const DeviceMesh mesh(communicator(), {1, size()}, {"dp", "tp"}, "uneven");
  const auto mine = at::full({2}, rank() + 1.0);
  const auto sum = [&](int dim) { return call_functional("all_reduce", {mine, std::string("sum"), mesh.group_name(dim)}); };
  EXPECT_TRUE(at::equal(sum(0), mine));
  EXPECT_TRUE(at::equal(sum(1), at::full({2}, size() * (size() + 1) / 2.0)));
  // One after the other, neither waited for: each tensor is of its own group.
  const auto both = sum(1).add(sum(0));
  EXPECT_TRUE(at::equal(both, at::full({2}, size() * (size() + 1) / 2.0 + rank() + 1)));
}

TEST(DeviceMesh, GroupsAreNamedByDimensionAlikeOnEveryRank) {  // C149
  const DeviceMesh mesh(communicator(), {size(), 1}, {"dp", "tp"});
  EXPECT_EQ(mesh.group_name(0), "mesh.dp");
  EXPECT_EQ(mesh.group_name("tp"), "mesh.tp");
  EXPECT_THAT(communicator().groups(), AllOf(Contains(Pair("mesh.dp", size())), Contains(Pair("mesh.tp", 1))));
  EXPECT_EQ(to_string(mesh.layout()), "mesh(dp=" + std::to_string(size()) + ", tp=1)");
}

TEST(DeviceMesh, DimensionsAreFoundByName) {
  const DeviceMesh mesh(communicator(), {1, size()}, {"dp", "tp"}, "named");
  EXPECT_EQ(mesh.dim("tp"), 1);
  EXPECT_EQ(mesh.size("tp"), size());
  EXPECT_EQ(mesh.coordinate("tp"), rank());
  EXPECT_THAT(mesh.dim_names(), ElementsAre("dp", "tp"));
  const std::string layout = "named(dp=1, tp=" + std::to_string(size()) + ")";
  EXPECT_EQ(invalid([&] { static_cast<void>(mesh.dim("pp")); }), layout + " has no dimension 'pp'");
  EXPECT_EQ(invalid([&] { static_cast<void>(mesh.size(2)); }), layout + " has no dimension 2: expected 0 to 1");
  EXPECT_EQ(invalid([&] { static_cast<void>(mesh.coordinate(-1)); }), layout + " has no dimension -1: expected 0 to 1");
  EXPECT_EQ(invalid([&] { static_cast<void>(mesh.rank_at({0})); }), layout + " has 2 dimensions, found the coordinates [0]");
  EXPECT_EQ(invalid([&] { static_cast<void>(mesh.rank_at({1, 0})); }), layout + " has no place at the coordinates [1, 0]");
}

TEST(DeviceMesh, CoordinateTensorsAreOneObjectForAllCopies) {
  const DeviceMesh mesh(communicator(), {1, size()}, {"dp", "tp"}, "tensors");
  const DeviceMesh copy = mesh;
  const at::Tensor& coordinate = mesh.coordinate_tensor(1);
  EXPECT_EQ(coordinate.dim(), 0);
  EXPECT_EQ(coordinate.scalar_type(), at::kLong);
  EXPECT_TRUE(coordinate.is_cpu());
  EXPECT_EQ(coordinate.item<std::int64_t>(), rank());
  EXPECT_TRUE(copy.coordinate_tensor(1).is_same(coordinate));
  EXPECT_TRUE(mesh["tp"].coordinate_tensor(0).is_same(coordinate));
  const DeviceMesh turned = mesh[{"tp", "dp"}];
  EXPECT_TRUE(turned.coordinate_tensor(0).is_same(coordinate));
  const DeviceMesh again(communicator(), {1, size()}, {"dp", "tp"}, "tensors");
  EXPECT_TRUE(again.coordinate_tensor(1).is_same(coordinate));
}

TEST(DeviceMesh, ASubMeshHasTheGroupsOfItsDimensions) {
  if (size() != 4) GTEST_SKIP() << "needs 4 ranks";
  const DeviceMesh mesh(communicator(), {2, 2}, {"dp", "tp"}, "whole");
  const std::size_t n_groups = communicator().groups().size();
  const DeviceMesh tp = mesh["tp"];
  const DeviceMesh turned = mesh[{"tp", "dp"}];
  EXPECT_EQ(communicator().groups().size(), n_groups) << "nothing is registered";
  EXPECT_EQ(to_string(tp.layout()), "whole(tp=2)");
  EXPECT_EQ(tp.group_name(0), "whole.tp");
  EXPECT_EQ(tp.coordinate(0), rank() % 2);
  EXPECT_EQ(tp.rank_at({0}), rank() < 2 ? 0 : 2);
  EXPECT_EQ(tp.rank_at({1}), rank() < 2 ? 1 : 3);
  EXPECT_EQ(mesh[std::string("dp")].rank_at({1}), rank() % 2 + 2);
  EXPECT_EQ(turned.rank_at({1, 0}), 1);
  EXPECT_EQ(turned["tp"], tp);
  EXPECT_EQ(invalid([&] { static_cast<void>(tp["dp"]); }), "whole(tp=2) has no dimension 'dp'");
  EXPECT_THAT(invalid([&] {
                static_cast<void>(mesh[{"tp", "tp"}]);
              }),
              HasSubstr("expected distinct dimensions, found [\"tp\", \"tp\"]"));
  EXPECT_THAT(invalid([&] { static_cast<void>(mesh[Names()]); }), HasSubstr("expected distinct dimensions, found []"));
}

TEST(DeviceMesh, IsComparedByLayoutAndPlace) {
  const DeviceMesh mesh(communicator(), {size(), 1}, {"dp", "tp"}, "compared");
  const DeviceMesh again(communicator(), {size(), 1}, {"dp", "tp"}, "compared");
  const DeviceMesh renamed(communicator(), {size(), 1}, {"dp", "tp"}, "compared_2");
  EXPECT_EQ(mesh, again);
  EXPECT_EQ(mesh["dp"], again["dp"]);
  EXPECT_FALSE(mesh == renamed);
  EXPECT_FALSE(mesh["dp"] == mesh);
  EXPECT_FALSE(mesh["dp"] == mesh["tp"]);
}

TEST(DeviceMesh, OneProcessIsAMeshOfOne) {
  const Communicator single = Communicator::single();
  const DeviceMesh mesh(single, {1, 1}, {"dp", "tp"}, "single");
  EXPECT_EQ(mesh.rank_at({0, 0}), 0);
  const auto sum = call_functional("all_reduce", {at::ones({2}), std::string("sum"), std::string("single.tp")});
  EXPECT_TRUE(at::equal(sum, at::ones({2})));
}

std::string error_of(const Sizes& shape, const Names& names, const std::string& name = "wrong") {
  return error_on_every_rank([&] { DeviceMesh(communicator(), shape, names, name); });
}

TEST(DeviceMeshErrors, AShapeThatDoesNotCoverTheRanksNamesBothNumbers) {
  const std::string ranks = "covers the " + std::to_string(size()) + (size() == 1 ? " rank " : " ranks ");
  const std::string takes = std::to_string(2 * (size() + 1));
  EXPECT_THAT(error_of({2, size() + 1}, {"dp", "tp"}),
              AllOf(HasSubstr("environment: device mesh \"wrong\": "), HasSubstr(ranks),
                    HasSubstr("found [2, " + std::to_string(size() + 1) + "], which takes " + takes)));
  // 2^63 * 2 + n wraps to n.
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(error_of({huge, 4, size()}, {"a", "b", "c"}), AllOf(HasSubstr(ranks), HasSubstr("which takes more than 2^63")));
}

TEST(DeviceMeshErrors, SizesBelowOneAreRefused) {
  EXPECT_THAT(error_of({0}, {"dp"}), HasSubstr("expected sizes of at least 1, found [0]"));
  EXPECT_THAT(error_of({-1, -size()}, {"dp", "tp"}), HasSubstr("expected sizes of at least 1, found [-1, -"));
}

TEST(DeviceMeshErrors, EachSizeHasAName) {
  EXPECT_THAT(error_of({size()}, {}), HasSubstr("and the names []"));
  EXPECT_THAT(error_of({}, {}), HasSubstr("one name for each dimension"));
  EXPECT_THAT(error_of({size(), 1}, {"dp"}), HasSubstr("and the names [\"dp\"]"));
  EXPECT_THAT(error_of({size()}, {"dp", "tp"}), HasSubstr("and the names [\"dp\", \"tp\"]"));
}

TEST(DeviceMeshErrors, NamesAreDistinctIdentifiers) {
  for (const char* name : {"", "2d", "d p", "d.p", "d-p", "d\n", "\xc3\xa4"}) {
    EXPECT_THAT(error_of({size(), 1}, {"dp", name}), HasSubstr("environment: device mesh \"wrong\": expected dimensions named by"));
    EXPECT_THAT(error_of({size()}, {"dp"}, name), HasSubstr("expected a name of letters, digits and '_'"));
  }
  EXPECT_THAT(error_of({size(), 1}, {"dp", "dp"}), HasSubstr("expected distinct names, found \"dp\" twice"));
}

TEST(DeviceMeshErrors, RanksThatDisagreeAreNamedWithBothMeshes) {
  if (size() == 1) GTEST_SKIP() << "needs 2 ranks";
  const bool differs = rank() == size() - 1;
  const std::string last =
      "rank mismatch: rank " + std::to_string(size() - 1) + " of " + std::to_string(size()) + ", device mesh: ";
  const std::string n = std::to_string(size());
  EXPECT_THAT(
      error_of(differs ? Sizes{1, size()} : Sizes{size(), 1}, {"dp", "tp"}),
      AllOf(HasSubstr(last), HasSubstr("expected wrong(dp=" + n + ", tp=1)"), HasSubstr("found wrong(dp=1, tp=" + n + ")")));
  EXPECT_THAT(error_of({size()}, {differs ? "tp" : "dp"}), AllOf(HasSubstr(last), HasSubstr("wrong(dp="), HasSubstr("wrong(tp=")));
  EXPECT_THAT(error_of({size()}, {"dp"}, differs ? "other" : "wrong"), AllOf(HasSubstr(last), HasSubstr("found other(dp=")));
  // Only one of the two is a mesh at all: the ranks whose own is in order must not go on.
  EXPECT_THAT(error_of({size()}, differs ? Names{"dp", "tp"} : Names{"dp"}), HasSubstr(last));
  EXPECT_THAT(error_of({size()}, {differs ? "d\", \"p" : "dp"}), HasSubstr(last));
  EXPECT_FALSE(communicator().groups().contains("wrong.dp"));
}

TEST(DeviceMeshErrors, AnotherMeshUnderANameIsRefused) {
  const DeviceMesh mesh(communicator(), {size(), 1}, {"dp", "tp"}, "taken");
  const std::size_t n_groups = communicator().groups().size();
  EXPECT_THAT(error_of({size()}, {"dp"}, "taken"),
              AllOf(HasSubstr("environment: "), HasSubstr("there is one of this name"), HasSubstr("choose another name")));
  EXPECT_THAT(error_of({size()}, {"pp"}, "taken"), HasSubstr("{\"dp\", \"tp\"}, found [\"pp\"]"));
  if (size() > 1) {
    EXPECT_THAT(error_of({1, size()}, {"dp", "tp"}, "taken"),
                AllOf(HasSubstr("environment: "), HasSubstr("'taken.dp' stands for")));
  }
  EXPECT_EQ(communicator().groups().size(), n_groups);
  EXPECT_EQ(DeviceMesh(communicator(), {size(), 1}, {"dp", "tp"}, "taken"), mesh);
  EXPECT_THAT(error_of({size(), 1}, {"dp", "tp"}, "taken_2"), "nothing");
}

}  // namespace
}  // namespace precast
