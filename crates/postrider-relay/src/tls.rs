//! One TLS implementation for all sinks: rustls with `ring`.

/// Installs it as the default of the process. Only the first call has an effect.
pub(crate) fn install_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
