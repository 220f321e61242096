;; Chains operations on a tap until the host's stack would end.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (local $link i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $model/score-for-learning (call $handle) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (local.set $link (call $model/scores.logprob (call $handle)))
  (loop $again
    (call $tensor/tensor.negate (local.get $link) (i32.const 64))
    (call $tensor/tensor.drop (local.get $link))
    (local.set $link (call $handle))
    (br $again))
  (unreachable))
