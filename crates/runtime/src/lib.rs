//! Plans, memory, schedules, inference requests, states and profiles.
