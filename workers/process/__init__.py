"""The worker process: actors, the scheduler of queues."""
