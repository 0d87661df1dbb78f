#include "comm/group_checks.h"

#include "precast/error.h"
#include "rank_test.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

namespace precast::rank_test {

// Boxed: the schemas of these ops differ between releases of LibTorch in how they type the reduction and the group.
at::Tensor call_functional(const std::string& op, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(("_c10d_functional::" + op).c_str(), "").callBoxed(arguments);
  at::Tensor result = arguments.at(0).toTensor();
  if (op == "wait_tensor") return result;
  return call_functional("wait_tensor", {result});
}

void expect_collectives_among(const std::vector<int>& ranks, const std::string& name) {
  SCOPED_TRACE("group " + name + " of ranks " + testing::PrintToString(ranks));
  const auto n = static_cast<std::int64_t>(ranks.size());
  const auto place = std::ranges::find(ranks, communicator().rank()) - ranks.begin();
  ASSERT_LT(place, n) << "this rank is not in the list";
  const std::int64_t mine = ranks[static_cast<std::size_t>(place)];
  const std::int64_t sum = std::accumulate(ranks.begin(), ranks.end(), std::int64_t{0});

  // Rank r holds r + 1 times 2, 4, 6: a sum, an average or an extreme tells which ranks took part.
  const at::Tensor base = at::arange(2, 8, 2, at::kLong);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    const at::Tensor input = base.mul(mine + 1).to(dtype);
    const auto reduced = [&](const std::string& how) { return call_functional("all_reduce", {input, how, name}); };
    EXPECT_TRUE(at::equal(reduced("sum"), base.mul(sum + n).to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(reduced("max"), base.mul(*std::ranges::max_element(ranks) + 1).to(dtype))) << dtype;
    EXPECT_TRUE(at::equal(reduced("min"), base.mul(*std::ranges::min_element(ranks) + 1).to(dtype))) << dtype;
  }
  const at::Tensor average = call_functional("all_reduce", {base.mul(mine + 1).to(at::kDouble), std::string("avg"), name});
  EXPECT_TRUE(at::allclose(average, base.to(at::kDouble).mul(static_cast<double>(sum + n) / static_cast<double>(n)), 1e-15, 0));

  const at::Tensor row = at::full({1, 2}, mine, at::kLong);
  const at::Tensor rows = call_functional("all_gather_into_tensor", {row, n, name});
  at::Tensor expected_rows = at::empty({n, 2}, at::kLong);
  for (std::int64_t i = 0; i < n; ++i) expected_rows[i].fill_(ranks[static_cast<std::size_t>(i)]);
  EXPECT_TRUE(at::equal(rows, expected_rows)) << rows;

  // Row i of rank r is 10 r + i; place i gets the sum of the rows i.
  const at::Tensor parts = at::arange(n, at::kLong).add(10 * mine).unsqueeze(1);
  EXPECT_EQ(call_functional("reduce_scatter_tensor", {parts, std::string("sum"), n, name}).item<std::int64_t>(),
            10 * sum + n * place);

  // Rank r sends i + 1 rows of 10 r + i to place i.
  std::vector<std::int64_t> sent, received;
  std::vector<at::Tensor> sent_rows, expected;
  for (std::int64_t i = 0; i < n; ++i) {
    sent.push_back(i + 1);
    received.push_back(place + 1);
    sent_rows.push_back(at::full({i + 1, 2}, 10 * mine + i, at::kLong));
    expected.push_back(at::full({place + 1, 2}, std::int64_t{10} * ranks[static_cast<std::size_t>(i)] + place, at::kLong));
  }
  const at::Tensor exchanged = call_functional("all_to_all_single", {at::cat(sent_rows), received, sent, name});
  EXPECT_TRUE(at::equal(exchanged, at::cat(expected))) << exchanged;

  // The source is a place in the group, not a rank of the job.
  const at::Tensor heard = call_functional("broadcast", {at::full({3}, mine, at::kLong), n - 1, name});
  EXPECT_TRUE(at::equal(heard, at::full({3}, ranks.back(), at::kLong))) << heard;
}

std::string error_on_every_rank(const std::function<void()>& call) {
  std::string mine = "nothing";
  try {
    call();
  } catch (const PrecompileError& error) {
    mine = std::string(to_string(error.code())) + ": " + error.what();
  }
  const auto texts = communicator().all_gather(std::as_bytes(std::span(mine)), after(kTime));
  EXPECT_TRUE(std::ranges::all_of(texts, [&](const auto& text) { return text == texts[0]; }))
      << "another rank threw otherwise: " << mine;
  return mine;
}

}  // namespace precast::rank_test
