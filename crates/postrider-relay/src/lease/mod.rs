//! Which relays live: this relay's own lease, and the membership list of all.

pub(crate) mod keeper;
mod membership;

pub(crate) use keeper::{Held, LeaseKeeper};
pub(crate) use membership::Membership;
