;; Uses the handle of a view as one of rows.
(import "tunebox:method/model@0.2.0" "policy" (func $policy (result i32)))
(import "tunebox:method/data@0.2.0" "[method]rows.count" (func $count (param i32) (result i32)))
(func $step (param i32) (result i32)
  (drop (call $count (call $policy)))
  (call $done))
