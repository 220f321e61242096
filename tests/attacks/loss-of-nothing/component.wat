;; Back-propagates a loss that is not a number.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $model/score-for-learning (call $handle) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $tensor/tensor.log (call $model/scores.logprob (call $handle)) (i32.const 64))
  (call $tensor/tensor.sum (call $handle) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $learn/backward (call $handle) (i32.const 64))
  (call $pass-on))
