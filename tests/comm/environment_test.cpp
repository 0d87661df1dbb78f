#include "comm/environment.h"

#include "precast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace precast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The one line by which a set of variables is refused; empty when it is accepted.
std::string refusal(const Variables& variables) {
  try {
    job_environment(variables);
  } catch (const PrecompileError& error) {
    EXPECT_EQ(error.code(), ErrorCode::environment);
    return error.what();
  }
  return {};
}

Variables torchrun(const std::string& rank, const std::string& size) {
  return {{"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"RANK", rank},
          {"WORLD_SIZE", size},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"}};
}

Variables openmpi(const std::string& rank, const std::string& size) {
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
}

Variables slurm_step() {
  return {{"SLURM_JOB_ID", "9"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"}};
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(JobEnvironment, NoVariablesAreOneProcess) {  // C207
  EXPECT_EQ(job_environment({{"PATH", "/bin"}}), JobEnvironment());
}

TEST(JobEnvironment, TorchrunGivesPlaceAndItsStore) {  // C207
  JobEnvironment expected;
  expected.launcher = "torchrun";
  expected.rank = 3;
  expected.size = 4;
  expected.local_rank = 1;
  expected.local_size = 2;
  expected.master_addr = "node0";
  expected.master_port = 29500;
  expected.agent_store = true;
  expected.restart = 2;
  EXPECT_EQ(job_environment(with(torchrun("3", "4"), "TORCHELASTIC_RESTART_COUNT", "2")), expected);
}

TEST(JobEnvironment, TorchrunsVariablesSetByHandNeedNoAgent) {  // C207
  const auto job = job_environment({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(job.launcher, "torchrun");
  EXPECT_EQ(job.size, 2);
  EXPECT_FALSE(job.agent_store) << "rank 0 hosts the store where no agent does";
}

TEST(JobEnvironment, OpenMpiGivesPlaceWithoutAddress) {  // C207
  const auto job = job_environment(openmpi("3", "4"));
  EXPECT_EQ(job.launcher, "openmpi");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  EXPECT_EQ(job.master_addr, "");
}

TEST(JobEnvironment, PmiGivesPlace) {  // C207
  const auto job = job_environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(job.launcher, "pmi");
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
}

TEST(JobEnvironment, FluxGivesPlace) {  // C207
  const auto job = job_environment(
      {{"FLUX_TASK_RANK", "2"}, {"FLUX_JOB_SIZE", "3"}, {"FLUX_TASK_LOCAL_ID", "0"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(job.launcher, "flux");
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.size, 3);
  EXPECT_EQ(job.local_rank, 0);
}

TEST(JobEnvironment, SlurmStepGivesPlaceAndTheNodesShareOfRanks) {  // C207
  const auto job = job_environment(slurm_step());
  EXPECT_EQ(job.launcher, "slurm");
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.size, 7);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 3) << "node 1 of '4,3'";
}

TEST(JobEnvironment, SlurmsRepeatedNodesAreCounted) {  // C207
  auto variables = with(slurm_step(), "SLURM_STEP_TASKS_PER_NODE", "2(x2),3");
  EXPECT_EQ(job_environment(with(variables, "SLURM_NODEID", "1")).local_size, 2);
  EXPECT_EQ(job_environment(with(variables, "SLURM_NODEID", "2")).local_size, 3);
}

TEST(JobEnvironment, SlurmStepsSizeIsNotTheAllocations) {  // C207
  EXPECT_EQ(job_environment(with(slurm_step(), "SLURM_STEP_NUM_TASKS", "6")).size, 6);
}

TEST(JobEnvironment, SlurmAllocationWithoutStepIsOneProcess) {  // C207
  EXPECT_EQ(job_environment(without(slurm_step(), "SLURM_STEP_ID")), JobEnvironment());
}

TEST(JobEnvironment, TorchrunInsideAnMpiOrSlurmJobWins) {  // C207
  auto variables = slurm_step();
  variables.merge(torchrun("3", "4"));
  variables.merge(openmpi("0", "1"));
  EXPECT_EQ(job_environment(variables).launcher, "torchrun");
  EXPECT_EQ(job_environment(variables).rank, 3);
}

TEST(JobEnvironment, RankNotBelowSizeIsRefused) {  // C207
  EXPECT_THAT(refusal(torchrun("4", "4")), AllOf(HasSubstr("RANK=4"), HasSubstr("WORLD_SIZE=4")));
  EXPECT_THAT(refusal(openmpi("9", "2")), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=9"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
}

TEST(JobEnvironment, HalfSetVariablesAreNamed) {  // C207
  EXPECT_THAT(refusal({{"RANK", "0"}}), AllOf(HasSubstr("RANK=0"), HasSubstr("WORLD_SIZE not set")));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), AllOf(HasSubstr("RANK not set"), HasSubstr("WORLD_SIZE=2")));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE not set"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK not set"));
}

TEST(JobEnvironment, MissingAddressIsNamed) {  // C207
  EXPECT_THAT(refusal(without(without(torchrun("3", "4"), "MASTER_ADDR"), "MASTER_PORT")),
              HasSubstr("MASTER_ADDR and MASTER_PORT"));
  EXPECT_THAT(refusal(without(torchrun("3", "4"), "MASTER_PORT")),
              AllOf(HasSubstr("MASTER_ADDR=node0"), HasSubstr("MASTER_PORT not set")));
}

TEST(JobEnvironment, WhatIsNoNumberIsNamed) {  // C207
  for (const char* text : {"", "two", "-1", "1.5", " 1", "1x", "99999999999999999999"})
    EXPECT_THAT(refusal(torchrun(text, "4")), HasSubstr("RANK=" + std::string(text))) << "RANK='" << text << "'";
  EXPECT_THAT(refusal(torchrun("0", "0")), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(refusal(with(torchrun("0", "4"), "MASTER_PORT", "70000")), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(refusal(with(slurm_step(), "SLURM_STEP_TASKS_PER_NODE", "four")), HasSubstr("SLURM_STEP_TASKS_PER_NODE=four"));
}

TEST(JobEnvironment, LaunchersThatDisagreeAreNamed) {  // C207
  auto variables = with(with(openmpi("1", "2"), "RANK", "0"), "WORLD_SIZE", "2");
  EXPECT_THAT(refusal(variables), AllOf(HasSubstr("RANK=0"), HasSubstr("OMPI_COMM_WORLD_RANK=1")));
  variables["RANK"] = "1";
  EXPECT_EQ(refusal(variables), "") << "variables that say the same are accepted";
  variables["WORLD_SIZE"] = "3";
  EXPECT_THAT(refusal(variables), AllOf(HasSubstr("WORLD_SIZE=3"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
}

TEST(JobEnvironment, LocalRanksThatCannotBeAreRefused) {  // C207
  EXPECT_THAT(refusal(with(torchrun("3", "4"), "LOCAL_RANK", "2")),
              AllOf(HasSubstr("LOCAL_RANK=2"), HasSubstr("LOCAL_WORLD_SIZE=2")));
  EXPECT_THAT(refusal(with(torchrun("1", "2"), "LOCAL_WORLD_SIZE", "3")),
              AllOf(HasSubstr("LOCAL_WORLD_SIZE=3"), HasSubstr("WORLD_SIZE=2")));
}

TEST(JobEnvironment, EveryRefusalIsOneLine) {  // C207
  for (const auto& variables :
       {torchrun("4", "4"), torchrun("x", "4"), Variables{{"RANK", "0"}}, without(torchrun("3", "4"), "MASTER_PORT")})
    EXPECT_THAT(refusal(variables), Not(HasSubstr("\n")));
}

TEST(Threads, RequestWinsOverVariableWinsOverCores) {
  const JobEnvironment job;
  EXPECT_EQ(choose_threads({{"OMP_NUM_THREADS", "3"}}, job, 2, 8).count, 2);
  EXPECT_EQ(choose_threads({{"OMP_NUM_THREADS", "3"}}, job, 0, 8).count, 3);
  EXPECT_EQ(choose_threads({}, job, 0, 8).count, 8);
}

TEST(Threads, CoresAreSharedByTheNodesRanks) {
  JobEnvironment job;
  job.size = job.local_size = 3;
  EXPECT_EQ(choose_threads({}, job, 0, 8).count, 2);
  EXPECT_EQ(choose_threads({}, job, 0, 2).count, 1) << "never none";
}

TEST(Threads, OneUnderTorchrunIsExplained) {
  auto job = job_environment(torchrun("0", "2"));
  const auto choice = choose_threads({{"OMP_NUM_THREADS", "1"}}, job, 0, 8);
  EXPECT_EQ(choice.count, 1);
  EXPECT_THAT(choice.reason, HasSubstr("torchrun"));
  EXPECT_THAT(choose_threads({{"OMP_NUM_THREADS", "2"}}, job, 0, 8).reason, Not(HasSubstr("torchrun")));
}

TEST(Threads, WhatIsNoNumberIsNamed) {
  for (const char* text : {"0", "many", "-2", ""}) {
    try {
      choose_threads({{"OMP_NUM_THREADS", text}}, {}, 0, 8);
      ADD_FAILURE() << "accepted OMP_NUM_THREADS='" << text << "'";
    } catch (const PrecompileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("OMP_NUM_THREADS=" + std::string(text)));
    }
  }
}

}  // namespace
}  // namespace precast
