//! What the crate promises, checked against the vectors under `tests/vectors/wire`.

#[cfg(test)]
mod document;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod extension;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod negotiation;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod raw_samples;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod session;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vectors;
