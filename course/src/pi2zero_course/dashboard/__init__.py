"""The room at a glance: who agrees lets each check note its result for the instructor, whose page shows tasks against seats."""
