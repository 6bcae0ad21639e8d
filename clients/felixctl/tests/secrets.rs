//! What is printed of settings and credentials, by programs and by `Debug`, shows no secret.

use felix_auth::Audience;
use felixctl::cli::Connection;
use felixctl::contexts::{Contexts, Taken};
use felixctl::credentials::{Credentials, Issued};
use felixctl::settings::{Given, Settings};

const SECRET: &str = "sesame-open-9f3c";

fn connection() -> Connection {
    Connection {
        tenant: Some("acme".into()),
        token: Some(SECRET.into()),
        controlplane_token: Some(SECRET.into()),
        ..Connection::default()
    }
}

#[test]
fn contexts_and_settings_show_no_token() {
    let mut contexts = Contexts::default();
    contexts
        .add("prod", connection(), Taken::Refuse)
        .expect("added");
    let settings = Settings::resolve(&Given::default(), Connection::default(), &contexts, None)
        .expect("settings");
    for shown in [
        format!("{contexts:?}"),
        format!("{settings:?}"),
        serde_json::to_string(&settings.explain()).expect("json"),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains("acme"), "{shown}");
    }
}

#[test]
fn a_context_keeps_its_token_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.toml");
    let mut contexts = Contexts::default();
    contexts
        .add("prod", connection(), Taken::Refuse)
        .expect("added");
    contexts.save(&file).expect("saved");
    let read = Contexts::load(&file).expect("read");
    let token = read.get("prod").expect("prod").token.clone();
    assert_eq!(token.expect("a token").reveal(), SECRET);
}

#[test]
fn credentials_show_no_token() {
    let mut kept = Credentials::new("https://felix.example.com", "acme");
    kept.keep(
        Audience::Broker,
        Issued {
            token: SECRET.into(),
            issued_at: 0,
            expires_at: 900,
            refresh_token: Some(SECRET.into()),
            refresh_expires_at: None,
        },
    );
    assert!(!format!("{kept:?}").contains(SECRET));
}

#[test]
fn a_control_plane_shows_no_secret_of_its_configuration() {
    let config = felix_controlplane::Config {
        bootstrap_token: felix_controlplane::Secret(SECRET.into()),
        bootstrap_token_previous: felix_controlplane::Secret(SECRET.into()),
        postgres_url: felix_controlplane::Secret(format!("postgres://felix:{SECRET}@db/felix")),
        ..felix_controlplane::Config::default()
    };
    assert!(!format!("{config:?}").contains(SECRET));
    assert!(!config.to_toml().contains(SECRET));
}
