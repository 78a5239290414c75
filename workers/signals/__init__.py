"""Redis and Dramatiq: broker, doorbell, wake-ups, periodic tasks."""
