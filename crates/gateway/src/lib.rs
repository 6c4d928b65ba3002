//! The front door: listener, stages of a request, routes.
