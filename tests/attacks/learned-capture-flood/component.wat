;; Captures activations for a gradient, and drops them, until something stops it.
(import "tunebox:method/data@0.2.0" "[method]batch.rows" (func $rows (param i32 i32 i32 i32)))
(import "tunebox:method/hidden@0.2.0" "capture-for-learning" (func $capture (param i32 i32 i32 i32 i32 i32 i32)))
(import "tunebox:method/learn@0.2.0" "rate" (func $rate (result f64)))
(import "tunebox:method/tensor@0.2.0" "[resource-drop]tensor" (func $drop-tensor (param i32)))
;; 256: the side; 272: layer 0.
(data (i32.const 256) "example")
(data (i32.const 272) "\00\00\00\00")
(func $step (param $batch i32) (result i32)
  (local $examples i32)
  (call $rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (local.set $examples (call $handle))
  (loop $more
    (call $capture (local.get $examples) (i32.const 272) (i32.const 1) (i32.const 3) (i32.const 2) (i32.const 0) (i32.const 64))
    (call $drop-tensor (call $handle))
    (br $more))
  (call $done))
