;; Captures activations for a gradient, and drops them, until something stops it.
(import "tunebox:method/learn@0.2.0" "rate" (func (result f64)))
;; 256: the side; 272: layer 0.
(data (i32.const 256) "example")
(data (i32.const 272) "\00\00\00\00")
(func $step (param $batch i32) (result i32)
  (local $examples i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (local.set $examples (call $handle))
  (loop $more
    (call $hidden/capture-for-learning (local.get $examples) (i32.const 272) (i32.const 1) (i32.const 3) (i32.const 2) (i32.const 0) (i32.const 64))
    (call $tensor/tensor.drop (call $handle))
    (br $more))
  (call $done))
