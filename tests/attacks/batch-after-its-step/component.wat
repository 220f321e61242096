;; Remembers the batch that it was lent and uses it when it is no longer there.
(import "tunebox:method/data@0.2.0" "[method]batch.size" (func $size (param i32) (result i32)))
(global $kept (mut i32) (i32.const 0))
(func $step (param $batch i32) (result i32)
  (global.set $kept (local.get $batch))
  (call $done))
(func $finish (result i32)
  (drop (call $size (global.get $kept)))
  (call $done))
