//! A certificate authority for one test, with a certificate for a server and one for a client.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// Files in PEM format, which go when the value is dropped. Keep it longer than the servers.
#[derive(Debug)]
pub struct Certificates {
    home: TempDir,
}

impl Certificates {
    /// Makes an authority, a server's certificate for `localhost` and `127.0.0.1`, and a client's, both signed by it.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn generate() -> io::Result<Self> {
        Self::generate_until(None)
    }

    /// As [`Certificates::generate`], but the server's certificate expired long ago.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn expired() -> io::Result<Self> {
        Self::generate_until(Some(2001))
    }

    fn generate_until(year: Option<i32>) -> io::Result<Self> {
        let certificates = Self { home: super::home("certificates")? };
        certificates.write(year).map_err(io::Error::other)?;
        Ok(certificates)
    }

    fn write(&self, year: Option<i32>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut authority = named("fencepost-lab authority", &[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        fs::write(self.authority(), pem("CERTIFICATE", authority.self_signed(&key)?.der()))?;
        let authority = Issuer::new(authority, key);
        for (name, hosts) in [("server", ["localhost", "127.0.0.1"].as_slice()), ("client", &[])] {
            let key = KeyPair::generate()?;
            let mut params = named(name, hosts)?;
            if let Some(year) = year.filter(|_| name == "server") {
                params.not_before = date_time_ymd(year - 1, 1, 1);
                params.not_after = date_time_ymd(year, 1, 1);
            }
            let certificate = params.signed_by(&key, &authority)?;
            fs::write(self.file(&format!("{name}.crt")), pem("CERTIFICATE", certificate.der()))?;
            let path = self.file(&format!("{name}.key"));
            fs::write(&path, pem("PRIVATE KEY", key.serialized_der()))?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    /// The directory of the files.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The certificate of the authority, which both sides trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file("authority.crt")
    }

    /// The server's certificate.
    #[must_use]
    pub fn server(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// The server's private key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// The client's certificate.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.file("client.crt")
    }

    /// The client's private key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

fn named(name: &str, hosts: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// By hand, since the crate that `rcgen` would use brings a second version of another one.
fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: String = text.as_bytes().chunks(64).map(|line| format!("{}\n", line.escape_ascii())).collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}
