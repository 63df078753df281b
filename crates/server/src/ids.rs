//! Numbers by which things of one loop, or of one configuration, know each other: a type for each table, so that the
//! compiler sees a swap.
//!
//! A table makes its ids and is asked by them; nothing else turns a number into one, but for what carries ids between
//! threads as plain numbers (`Ticket`, `Pooled`).

/// An id, for tables of any of them ([`Places`](crate::places::Places)).
pub(crate) trait Numbered: Copy + PartialEq {
    /// As the ids' own.
    fn of_place(place: usize) -> Self;

    /// As the ids' own.
    fn place(self) -> usize;
}

/// Declares ids, each with the type of its number. A macro, as no function declares a type.
macro_rules! ids {
    ($($(#[$attribute:meta])* $name:ident: $number:ty;)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name($number);

        impl Numbered for $name {
            #[inline]
            fn of_place(place: usize) -> Self {
                Self::of_place(place)
            }

            #[inline]
            fn place(self) -> usize {
                self.place()
            }
        }

        impl $name {
            /// That of the place in its table.
            ///
            /// # Panics
            /// When the place is beyond what the type counts: tables are bounded.
            #[inline]
            pub(crate) fn of_place(place: usize) -> Self {
                Self(<$number>::try_from(place).expect("tables are bounded"))
            }

            /// Its place in its table.
            #[inline]
            pub(crate) const fn place(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A request that is answered later, in [`Exchanges`](crate::exchange::table::Exchanges).
    ExchangeId: u32;
    /// An upstream connection, in [`UpstreamConnections`](crate::exchange::connections::UpstreamConnections).
    UpstreamId: u32;
    /// The streams of a client's connection of HTTP/2, in [`ReadyStreams`](crate::exchange::asker::ReadyStreams).
    StreamsId: u32;
    /// A client's connection of HTTP/2 that rests, in [`RestingTable`](crate::front::resting::RestingTable).
    RestingId: u32;
    /// The two sides in TCP mode, in [`TcpPairs`](crate::exchange::tcp_pair::TcpPairs).
    TcpPairId: u32;
    /// A group of backends, in the order of the settings; by default the first one.
    #[derive(Default)]
    GroupId: u16;
    /// A backend, among those of all groups.
    BackendId: u16;
    /// A front end, in [`FrontendTable`](crate::backends::groups::FrontendTable); by default the first one.
    #[derive(Default)]
    FrontId: u16;
    /// What is done to the fields of a request and its answer, in [`FieldSet::all`](crate::head::sets::FieldSet::all).
    #[derive(Default)]
    FieldSetId: u32;
    /// The settings of one reload, in [`Epochs`](crate::epochs::Epochs); by default those of the start.
    #[derive(Default)]
    EpochId: u8;
    /// The counts of a route, by its name, in [`CountedRoutes`](crate::backends::counted_routes::CountedRoutes).
    RouteCountId: u16;
    /// A site, in the order of the settings.
    SiteId: u16;
    /// A route, in the order of the settings, of all sites.
    RouteId: u16;
    /// A limit on how often clients may ask, in [`Rates`](crate::rates::Rates).
    LimitId: u16;
    /// The users of a file, in the order of the settings, in [`Passwords`](crate::passwords::Passwords).
    UsersId: u16;
}
