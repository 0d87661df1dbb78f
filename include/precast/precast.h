#pragma once

// The whole public API.
#include "precast/artifact.h"
#include "precast/communicator.h"
#include "precast/compile_on_one_rank.h"
#include "precast/data_parallel.h"
#include "precast/error.h"
#include "precast/log.h"
#include "precast/options.h"
#include "precast/precompile.h"
#include "precast/pytree.h"
#include "precast/step.h"
