//! How many files and connections may be open at a time.

/// Allows this process as many as it may allow itself. A stream takes two, and what a shell or systemd starts with (1,024) is
/// kept low for programs of old that could not count further.
pub(crate) fn allow_many_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Where it is refused, fewer have to do.
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "the number of open files stays limited to {:?}", limit.current);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn as_many_files_as_may_be_are_allowed() {
        allow_many_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
