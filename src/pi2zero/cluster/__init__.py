"""A set of MPI ranks that a notebook starts, runs cells on, watches, restarts and stops.

In the kernel: api.py (start, reset), mpi_cluster.py (the object that `start` returns), magics.py
(`%%px`), cell_watch.py (one cell), hang_detector.py, cell_output.py, output_changes.py,
activity_lanes.py and display.py (what is shown), report.py (what a learner reads when it fails),
history.py, cell_source.py, views.py and replay.py (what new ranks are told again), names.py,
engines.py (the processes), mpirun_messages.py, live_ranks.py,
overview.py (for JupyterLab), kernel_watch.py (does the kernel itself wait?). In a process of its
own: watchdog.py. On the ranks: engine_setup.py, engine_shell.py, activity_sampler.py,
frame_calls.py, blocking_calls.py, safe_ast.py, capped_stream.py. None of them imports torch.
"""
