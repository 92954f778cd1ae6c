//! SASL DIGEST-MD5, which ZooKeeper servers offer beside Kerberos.
//!
//! Source: RFC 2831. Only what a ZooKeeper server asks for: qop `auth`, algorithm `md5-sess`, UTF-8. The method is old
//! and weak; over TLS, or with `auth=digest` over TLS, a password is as safe as TLS.

use std::{collections::HashMap, fmt::Write as _};

use md5::{Digest, Md5};

/// Whom the client speaks to, as Java's client names it whatever the host is.
const URI: &str = "zookeeper/zk-sasl-md5";

/// What the client says, and what the server must say to that.
pub(super) struct Answer {
    pub(super) response: String,
    pub(super) expected: String,
}

/// A number that is used once.
pub(super) fn nonce() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(hex(&bytes))
}

/// The answer to a server's challenge.
pub(super) fn answer(challenge: &[u8], user: &str, password: &str, cnonce: &str) -> Result<Answer, String> {
    let text = std::str::from_utf8(challenge).map_err(|_| "the challenge is no text")?;
    let said = directives(text);
    let get = |key: &str| said.get(key).map(String::as_str);
    let nonce = get("nonce").ok_or("the challenge has no nonce")?;
    if get("algorithm").is_some_and(|name| name != "md5-sess") {
        return Err("the algorithm is not md5-sess".into());
    }
    if !get("qop").unwrap_or("auth").split(',').any(|qop| qop.trim() == "auth") {
        return Err("the quality of protection is not auth".into());
    }
    let realm = get("realm").unwrap_or_default();
    let secret = Md5::digest(format!("{user}:{realm}:{password}"));
    let session = hex(&md5(&[&secret, format!(":{nonce}:{cnonce}").as_bytes()]));
    let proof = |method: &str| {
        let action = hex(&Md5::digest(format!("{method}:{URI}")));
        hex(&Md5::digest(format!("{session}:{nonce}:00000001:{cnonce}:auth:{action}")))
    };
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let response = format!(
        "charset=utf-8,username=\"{}\",realm=\"{}\",nonce=\"{}\",nc=00000001,cnonce=\"{cnonce}\",digest-uri=\"{URI}\",maxbuf=65536,response={},qop=auth",
        quote(user),
        quote(realm),
        quote(nonce),
        proof("AUTHENTICATE"),
    );
    Ok(Answer { response, expected: format!("rspauth={}", proof("")) })
}

fn md5(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `key=value` and `key="value"`, separated by commas.
fn directives(text: &str) -> HashMap<String, String> {
    let (mut found, mut rest) = (HashMap::new(), text);
    while let Some((key, tail)) = rest.split_once('=') {
        let mut value = String::new();
        let mut chars = tail.char_indices();
        let mut is_quoted = false;
        let mut end = tail.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => is_quoted = !is_quoted,
                '\\' if is_quoted => value.extend(chars.next().map(|(_, c)| c)),
                ',' if !is_quoted => {
                    end = at + 1;
                    break;
                }
                c => value.push(c),
            }
        }
        found.insert(key.trim().to_ascii_lowercase(), value);
        rest = &tail[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 2831, section 4, but for the URI, which is IMAP's there.
    #[test]
    fn a_challenge_is_read_and_answered() {
        let challenge = br#"realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8"#;
        let answer = answer(challenge, "chris", "secret", "OA6MHXh6VqTrRk").unwrap();
        assert!(answer.response.contains("username=\"chris\",realm=\"elwood.innosoft.com\""));
        assert!(answer.response.contains("nonce=\"OA6MG9tEQGm2hh\"") && !answer.response.contains("secret"));
        assert_eq!(answer.expected.len(), "rspauth=".len() + 32);
    }

    #[test]
    fn what_we_do_not_speak_is_refused() {
        for challenge in ["", "realm=\"x\"", "nonce=\"x\",qop=\"auth-conf\"", "nonce=\"x\",algorithm=md5"] {
            assert!(answer(challenge.as_bytes(), "u", "p", "c").is_err(), "{challenge}");
        }
    }

    #[test]
    fn quotes_and_commas_within_a_value_are_its_own() {
        let found = directives(r#"a="x,\"y\"=z",B=c"#);
        assert_eq!((found["a"].as_str(), found["b"].as_str()), ("x,\"y\"=z", "c"));
    }
}
