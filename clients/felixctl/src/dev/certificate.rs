//! The development node's own certificate authority, kept in its data directory so that clients
//! that trusted it yesterday trust it today, and a server certificate issued at every start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::contexts::write_private;

/// Names the server certificate is good for: this machine and nothing else.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Name of the authority, which clients show when they refuse it.
const AUTHORITY: &str = "Felix development CA (this machine only)";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFailed {
    /// A file of the data directory could not be read or written.
    #[error("{file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key could not be made or read.
    #[error("the development certificate cannot be made: {0}")]
    Made(#[from] rcgen::Error),
}

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The authority, which clients trust.
    pub ca: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
}

/// Makes the authority if the directory has none, and a new server certificate in any case.
///
/// # Errors
/// When files cannot be read or written, or the authority's key is damaged.
pub fn prepare(directory: &Path) -> Result<Files, CertificateFailed> {
    let files = Files {
        ca: directory.join("ca.pem"),
        certificate: directory.join("server.pem"),
        key: directory.join("server.key"),
    };
    let issuer = authority(&files.ca, &directory.join("ca.key"))?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(NAMES.map(str::to_owned).to_vec())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    write(&files.certificate, &certificate.pem())?;
    write(&files.key, &key.serialize_pem())?;
    Ok(files)
}

/// The authority's key is what is kept. Its certificate is written once, beside it; everything in
/// it but the key is the same for every development node.
fn authority(ca: &Path, key_file: &Path) -> Result<Issuer<'static, KeyPair>, CertificateFailed> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    if ca.exists() && key_file.exists() {
        let pem = fs::read_to_string(key_file).map_err(|source| CertificateFailed::Io {
            file: key_file.to_owned(),
            source,
        })?;
        return Ok(Issuer::new(params, KeyPair::from_pem(&pem)?));
    }
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    // The key goes first: a certificate without its key would be taken for a complete pair by
    // nobody, and made again.
    write(key_file, &key.serialize_pem())?;
    write(ca, &certificate.pem())?;
    Ok(Issuer::new(params, key))
}

fn write(file: &Path, pem: &str) -> Result<(), CertificateFailed> {
    write_private(file, pem.as_bytes()).map_err(|source| CertificateFailed::Io {
        file: file.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_stays_and_the_server_certificate_is_new_at_every_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = prepare(directory.path()).expect("certificates");
        let ca = fs::read(&first.ca).expect("ca");
        let server = fs::read(&first.certificate).expect("certificate");
        let second = prepare(directory.path()).expect("certificates again");
        assert_eq!(first, second);
        assert_eq!(fs::read(&second.ca).expect("ca"), ca);
        assert_ne!(fs::read(&second.certificate).expect("certificate"), server);
    }

    #[test]
    fn a_damaged_authority_is_an_error_and_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        prepare(directory.path()).expect("certificates");
        fs::write(directory.path().join("ca.key"), "damaged").expect("damage");
        assert!(matches!(
            prepare(directory.path()),
            Err(CertificateFailed::Made(_))
        ));
    }
}
