"""Many customers at once: a file of comma-separated values, and the job that creates them."""
