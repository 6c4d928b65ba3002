//! SIGTERM and SIGINT drain; a second one ends at once.

use gateway::StopSwitch;
use tokio::signal::unix::{SignalKind, signal};

/// Pulls `stop` at every signal from now on.
pub(crate) fn pull_on_signals(stop: StopSwitch) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("asked to stop; once more stops at once");
            stop.pull();
        }
    });
    Ok(())
}
