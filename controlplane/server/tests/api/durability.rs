//! What was answered survives a restart.

use crate::common;
use felix_controlplane::{ControlPlane, RunFailed};

#[tokio::test]
async fn a_restart_finds_everything_as_it_was_and_old_tokens_still_verify() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = common::config();
    config.data_dir = dir.path().join("data");
    let plane = ControlPlane::start(config.clone()).await.unwrap();
    plane
        .initialize(&common::tenant("ops"), common::operators())
        .await
        .unwrap();
    let token = common::token(&plane, "ops", "p:operator");
    let before = plane.authority().catalogue();
    plane.shutdown().await;
    let plane = ControlPlane::start(config).await.unwrap();
    assert_eq!(plane.authority().catalogue(), before);
    let url = format!("http://{}/v1/tenants", plane.addresses().api);
    let answer = common::http()
        .get(url)
        .bearer_auth(token)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert!(
        plane
            .initialize(&common::tenant("ops"), common::operators())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_data_directory_is_private_and_locked() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mut config = common::config();
    config.data_dir = dir.path().join("data");
    std::fs::create_dir(&config.data_dir).unwrap();
    let plane = ControlPlane::start(config.clone()).await.unwrap();
    let mode = std::fs::metadata(&config.data_dir)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let second = ControlPlane::start(config.clone()).await.unwrap_err();
    assert!(matches!(second, RunFailed::Refused(_)), "{second}");
    plane.shutdown().await;
    config.cluster_id = "another".parse().unwrap();
    let foreign = ControlPlane::start(config).await.unwrap_err().to_string();
    assert!(foreign.contains("another"), "{foreign}");
}
