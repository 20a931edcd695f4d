//! Ordered rewriting passes over validated models.
