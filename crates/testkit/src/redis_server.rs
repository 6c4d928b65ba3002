//! A real `redis-server`, to be killed, paused and restarted.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to open its socket; a busy machine takes a second.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// A server of one's own: in a folder that goes with it, on a socket there or on a free port of this machine.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    /// Its configuration, where it needs one.
    file: Option<PathBuf>,
    arguments: Vec<OsString>,
    process: Option<Child>,
}

impl RedisServer {
    /// On a socket, and listening.
    ///
    /// # Errors
    /// If `redis-server` cannot be started; `scripts/setup` installs it.
    pub fn start() -> io::Result<Self> {
        let server = Self::with(0, |_| Vec::<OsString>::new())?;
        let deadline = Instant::now() + LISTENS_WITHIN;
        while let Err(error) = UnixStream::connect(server.socket()) {
            if Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// On a port as well, with more arguments, which may depend on its folder.
    ///
    /// # Errors
    /// If `redis-server` cannot be started.
    pub fn with<A: Into<OsString>>(
        port: u16,
        arguments: impl FnOnce(&Path) -> Vec<A>,
    ) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let arguments = arguments(folder.path());
        let mut server = Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            file: None,
            folder,
            port,
            process: None,
        };
        server.restart()?;
        Ok(server)
    }

    /// A sentinel on this port, with these lines in its configuration.
    ///
    /// # Errors
    /// If `redis-server` cannot be started.
    pub fn sentinel(port: u16, lines: &str) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let file = folder.path().join("sentinel.conf");
        // A sentinel writes what it learns into its file.
        std::fs::write(&file, lines)?;
        let mut server = Self {
            arguments: vec!["--sentinel".into()],
            file: Some(file),
            folder,
            port,
            process: None,
        };
        server.restart()?;
        Ok(server)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its port; 0 if it has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("redis.sock")
    }

    /// Its address, by the socket.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Starts it, empty, where it was before.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let process = Command::new("redis-server")
            .args(&self.file)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.folder())
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // One that has ended already is as good.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// It stands still: connections stay open, and nothing comes.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("-STOP")
    }

    /// It goes on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> io::Result<()> {
        let process = self.process.as_ref();
        let process = process.ok_or_else(|| io::Error::other("redis-server does not run"))?;
        let sent = Command::new("kill")
            .args([signal, &process.id().to_string()])
            .status()?;
        if sent.success() {
            Ok(())
        } else {
            Err(io::Error::other("redis-server has ended"))
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
