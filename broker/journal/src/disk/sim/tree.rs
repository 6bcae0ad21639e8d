//! Paths and nodes of a simulated disk.

use std::io;
use std::path::{Component, Path};

use super::node::{Link, Node, NodeId};
use super::{Fault, Inner, ROOT};

impl Inner {
    pub(super) fn node(&self, id: NodeId) -> io::Result<&Node> {
        self.nodes
            .get(&id)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> io::Result<&mut Node> {
        self.nodes
            .get_mut(&id)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let entries = self.node(at)?.entries()?;
                    at = *entries
                        .get(name.to_string_lossy().as_ref())
                        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                }
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
            }
        }
        Ok(at)
    }

    pub(super) fn split(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let dir = self.find(path.parent().ok_or_else(invalid)?)?;
        let name = path
            .file_name()
            .ok_or_else(invalid)?
            .to_string_lossy()
            .into_owned();
        Ok((dir, name))
    }

    pub(super) fn add(&mut self, path: &Path, node: Node) -> io::Result<NodeId> {
        if self.find(path).is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        if self.used() >= self.capacity {
            return Err(Fault::Full.error());
        }
        let (dir, name) = self.split(path)?;
        let id = self.next_node;
        self.node_mut(dir)?.link(Link::Add { name, id })?;
        self.next_node += 1;
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Bytes of all files that still have a name.
    pub(super) fn used(&self) -> u64 {
        let mut used = 0;
        let mut directories = vec![ROOT];
        while let Some(id) = directories.pop() {
            let Ok(entries) = self.node(id).and_then(Node::entries) else {
                continue;
            };
            for id in entries.values() {
                match self.nodes.get(id) {
                    Some(node) if node.is_dir() => directories.push(*id),
                    Some(node) => used += node.bytes().map_or(0, |bytes| bytes.len() as u64),
                    None => {}
                }
            }
        }
        used
    }
}
