//! [`table!`]: a struct and the keys that it is read from, in one list.

/// Declares a struct and implements [`Table`](crate::Table) for it: a key for each field, in their
/// order.
///
/// The words behind `///` are what the key does, in help texts, on the reference page and in the
/// documentation of the field. Behind `=` stands its value, by the two names that the table begins
/// with: `key` is the key of this name with these words, to be asked by what it accepts
/// ([`Key`](crate::Key)); `keys` are those of the section ([`Keys`](crate::Keys)), for fields that are
/// tables themselves. `as "name"` names the key where the field has a longer name,
/// `#[heading("…")]` is the heading in help texts from there on, and `=> method` what judges the keys
/// together: `fn method(self, keys: &mut Keys<'_>) -> Self`. A table that begins with `keys, key,
/// default;` implements [`Default`] too, with what it is where nothing is said.
///
/// A macro, as no function declares a type.
#[macro_export]
macro_rules! table {
    (
        $keys:ident, $key:ident $(, $default:ident)?;
        $(#[$of_struct:meta])*
        $vis:vis struct $table:ident {
            $(
                $(#[heading($heading:expr)])?
                $(#[doc = $about:literal])*
                $field_vis:vis $field:ident $(as $name:literal)?: $type:ty = $value:expr
            ),* $(,)?
        }
        $(=> $judge:ident)?
    ) => {
        $(#[$of_struct])*
        $vis struct $table {
            $( $(#[doc = $about])* $field_vis $field: $type, )*
        }

        impl $crate::Table for $table {
            fn read($keys: &mut $crate::Keys<'_>) -> Self {
                let table = Self {
                    // In this order.
                    $($field: {
                        $( $keys.heading($heading); )?
                        let name = $crate::table!(@name $field $($name)?);
                        let $key = $keys.key(name, concat!($($about),*));
                        // A field that is a table has no key of its own.
                        let _ = &$key;
                        $value
                    },)*
                };
                $( let table = table.$judge($keys); )?
                table
            }
        }

        $(
            impl Default for $table {
                /// As the table says.
                fn $default() -> Self {
                    $crate::Given::$default().read().expect("the defaults are right")
                }
            }
        )?
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}
