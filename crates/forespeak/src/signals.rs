//! SIGTERM and SIGINT drain; a second one ends at once. SIGHUP reads the configuration again.

use std::sync::Arc;

use gateway::StopSwitch;
use tokio::signal::unix::{SignalKind, signal};

use crate::wiring::Live;

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

/// Reloads at every SIGHUP from now on.
pub(crate) fn reload_on_hangup(live: Arc<Live>) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // It has logged what came of it.
            let _told = live.reload().await;
        }
    });
    Ok(())
}
