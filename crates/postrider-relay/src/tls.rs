//! One TLS for all sinks: rustls with `ring`.

/// Makes it the one that libraries find. Only the first call in a process does; later ones find it
/// there.
pub(crate) fn install_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
