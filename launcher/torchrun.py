"""torchrun whose exit code is that of the first rank that failed, and which leaves the explaining to that rank: no traceback of its own."""

import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

try:
    main()
except ChildFailedError as error:
    local_rank, failure = error.get_first_failure()
    status = failure.exitcode
    # A negative exit code is the signal that ended the rank; shells write 128 + signal.
    sys.exit(status if status > 0 else 128 - status)
except SignalException as error:
    sys.exit(128 + error.sigval.value)
