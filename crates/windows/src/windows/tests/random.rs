//! Random operations and starts, compared with the model.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::windows::tests::model::view;
use crate::windows::tests::scene::{Scene, operation};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_in_whatever_order(operations in vec(operation(), 1..60), in_order in any::<bool>()) {
        let directory = directory();
        let mut scene = Scene::new(directory.path());
        operations.iter().for_each(|operation| scene.run(operation));
        scene.reopen(in_order);
        assert_eq!(view(&scene.windows), scene.model.view());
    }
}
