//! Spans, stable codes, severities and renderers of ovir's diagnostics.
