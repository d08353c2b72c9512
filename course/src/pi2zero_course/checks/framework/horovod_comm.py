"""Horovod's calls, upon which the ranks agree before they make them: so no answer can hang in
one."""

from contextlib import contextmanager
from unittest import mock

from mpi4py import MPI

from pi2zero_course.checks.framework.answers import CheckError, speaking_of
from pi2zero_course.checks.framework.watched_comm import WatchedComm

CALLS = """allreduce allreduce_ grouped_allreduce grouped_allreduce_ allgather broadcast broadcast_
alltoall reducescatter barrier broadcast_parameters broadcast_optimizer_state broadcast_object
allgather_object""".split()  # noqa: SIM905 - easier to read


def on_horovod_ranks(function, learners) -> list:
    """Call function(), which calls the learner's function, on all ranks. Returns what it returns
    on each. Every rank raises if one does or they would hang."""
    import horovod.torch as hvd

    comm = WatchedComm(MPI.COMM_WORLD)
    try:
        with _watched(comm, hvd):
            return comm.run_together(speaking_of(learners, lambda comm: function()), ())
    except CheckError:
        hvd.shutdown()  # with it, gradients that some ranks have begun to send end
        hvd.init()
        raise
    finally:
        comm.free()


@contextmanager
def _watched(comm, hvd):
    def watch(name, real):
        def call(*args, **options):
            comm.used = True
            comm.agree_on_call(f"hvd.{name}")
            return real(*args, **options)

        return call

    def with_watched_step(*args, **options):
        optimizer = distributed(*args, **options)
        synchronize = optimizer.synchronize

        def wait_for_gradients():
            comm.agree_on_call("optimizer.step, in which Horovod averages the gradients")
            synchronize()

        optimizer.synchronize = wait_for_gradients
        return optimizer

    distributed = hvd.DistributedOptimizer
    calls = {name: watch(name, getattr(hvd, name)) for name in CALLS if hasattr(hvd, name)}
    with mock.patch.multiple(hvd, DistributedOptimizer=with_watched_step, **calls):
        yield
