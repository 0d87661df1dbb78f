#pragma once

// The whole public API.
#include "precast/artifact.h"
#include "precast/communicator.h"
#include "precast/compile_on_one_rank.h"
#include "precast/data_parallel.h"
#include "precast/device_mesh.h"
#include "precast/dtensor.h"
#include "precast/error.h"
#include "precast/log.h"
#include "precast/options.h"
#include "precast/parallel_plan.h"
#include "precast/placement.h"
#include "precast/precompile.h"
#include "precast/pytree.h"
#include "precast/reduction.h"
#include "precast/step.h"
