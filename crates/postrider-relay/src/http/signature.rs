//! Signatures by the Standard Webhooks specification.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

/// Prefix of a secret, before its base64.
const SECRET_PREFIX: &str = "whsec_";
/// Number of bytes of a secret, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs with one or more secrets: while they are rotated, a receiver knows only one of them.
pub(crate) struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl Signer {
    /// Decodes the secrets.
    ///
    /// # Errors
    /// Names the invalid one by its number, because it is a secret.
    pub(crate) fn new(secrets: &[String]) -> Result<Self, String> {
        let keys = secrets.iter().enumerate().map(|(number, secret)| {
            let text = secret.strip_prefix(SECRET_PREFIX);
            let bytes = text.and_then(|text| STANDARD.decode(text).ok());
            let bytes = bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len()));
            bytes.and_then(|bytes| Hmac::new_from_slice(&bytes).ok()).ok_or_else(|| {
                format!(
                    "`signing_secrets`: number {} is not a secret; write {SECRET_PREFIX} and the \
                     base64 of {} to {} bytes, as from `openssl rand -base64 32`",
                    number + 1,
                    SECRET_BYTES.start(),
                    SECRET_BYTES.end()
                )
            })
        });
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// Adds the three headers of a signature.
    pub(crate) fn sign(
        &self,
        headers: &mut HeaderMap,
        event_id: &str,
        at: DateTime<Utc>,
        body: &str,
    ) {
        if self.keys.is_empty() {
            return;
        }
        let at = at.timestamp().to_string();
        let signatures = self.keys.iter().map(|key| {
            let mut mac = key.clone();
            for part in [event_id, ".", &at, ".", body] {
                mac.update(part.as_bytes());
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        for (name, value) in [
            ("webhook-id", event_id),
            ("webhook-timestamp", &at),
            ("webhook-signature", &signatures),
        ] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the example of the specification's reference implementations.
    #[test]
    fn a_signature_is_the_one_that_receivers_expect() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let signer = Signer::new(&[secret.clone(), secret]).unwrap();
        let at = DateTime::from_timestamp(1_614_265_330, 0).unwrap();
        let mut headers = HeaderMap::new();
        signer.sign(&mut headers, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, r#"{"test": 2432232314}"#);
        let one = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers["webhook-signature"], format!("{one} {one}"));
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        assert_eq!(headers["webhook-id"], "msg_p5jXN8AQM9LWM0D4loKWxJek");
    }

    #[test]
    fn a_wrong_secret_is_refused_and_not_shown() {
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        for wrong in ["hush", "whsec_hush!", "whsec_aHVzaA==", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let error = Signer::new(&[good.clone(), wrong.to_owned()]).err().unwrap();
            assert!(error.contains("number 2") && !error.contains("hush"), "{error}");
        }
    }
}
