"""The storm: real processes, a mixed load, a seeded schedule of faults, a report of promises."""
