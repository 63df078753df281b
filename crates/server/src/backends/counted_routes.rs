//! Where answers of routes are counted: by their names, so that the counts of a route continue when it is read anew with others.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::config::sites::RouteName;
use crate::fault::ROUTES_COUNTED_MAX;
use crate::ids::RouteCountId;

/// The routes that there are, and were, each with its place.
#[derive(Debug, Default)]
pub(crate) struct CountedRoutes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    names: Vec<RouteName>,
    places: HashMap<RouteName, RouteCountId>,
}

impl CountedRoutes {
    /// The places of routes with these names: new ones come behind those that were there before. Behind
    /// [`ROUTES_COUNTED_MAX`] of them all have one together.
    pub(crate) fn places(&self, names: &[RouteName]) -> Box<[RouteCountId]> {
        let mut known = self.0.lock().expect("nothing panics under this lock");
        let Known { names: all, places } = &mut *known;
        let place = |name: &RouteName| {
            if let Some(place) = places.get(name) {
                return *place;
            }
            let place = RouteCountId::of_place(all.len().min(ROUTES_COUNTED_MAX));
            if all.len() <= ROUTES_COUNTED_MAX {
                // Of the last place, that of all others, no name is shown.
                all.push(name.clone());
            }
            if place.place() < ROUTES_COUNTED_MAX {
                places.insert(name.clone(), place);
            }
            place
        };
        names.iter().map(place).collect()
    }

    /// The names at all places so far; of one behind those that are counted apart none counts.
    pub(crate) fn names(&self) -> Vec<RouteName> {
        self.0.lock().expect("nothing panics under this lock").names.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_keeps_its_place_by_its_name_whatever_comes_and_goes() {
        let routes = CountedRoutes::default();
        let names = |paths: &[&str]| -> Vec<RouteName> {
            paths.iter().map(|path| RouteName::of("a.example", path)).collect()
        };
        let places = |paths: &[&str]| -> Vec<usize> {
            routes.places(&names(paths)).iter().map(|id| id.place()).collect()
        };
        assert_eq!(places(&["/", "/a"]), [0, 1]);
        assert_eq!(places(&["/b", "/"]), [2, 0]);
        assert_eq!(places(&["/a", "/b"]), [1, 2]);
        assert_eq!(
            routes.names().iter().map(|name| name.parts().1).collect::<Vec<_>>(),
            ["/", "/a", "/b"]
        );
        let many: Vec<String> = (0..1200).map(|number| format!("/{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let all = places(&many);
        assert_eq!((all[0], all[996], all[997], all[1199]), (3, 999, 1000, 1000));
        assert_eq!((places(&["/"]), routes.names().len()), (vec![0], ROUTES_COUNTED_MAX + 1));
    }
}
