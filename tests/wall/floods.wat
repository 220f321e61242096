;; What the guests of `accounts.rs` share: data, and a tap of the batch.
(data (i32.const 256) "example")
;; One axis, 1,507,328 long, and one of 65,536.
(data (i32.const 704) "\00\00\17\00\00\00\01\00")
(data (i32.const 512) "\02\00\00\00\03\00\00\00")
(data (i32.const 640) "\01\00\00\00\01\00\00\00\01\00\00\00\01\00\00\00\01\00\00\00\01\00\00\00\01\00\00\00\01\00\00\00")

;; The rows of the batch.
(func $examples (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $handle))

;; A tap of the batch, [2, 3].
(func $tap (param $batch i32) (result i32)
  (call $model/score-for-learning (call $examples (local.get $batch)) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $model/scores.logprob (call $handle)))

;; The sum of a tensor, which is dropped.
(func $total (param $tensor i32) (result i32)
  (call $tensor/tensor.sum (local.get $tensor) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $tensor/tensor.drop (local.get $tensor))
  (call $handle))

;; The sum of two tensors, which are dropped: their graphs stay.
(func $joined (param $a i32) (param $b i32) (result i32)
  (call $tensor/add (local.get $a) (local.get $b) (i32.const 64))
  (call $tensor/tensor.drop (local.get $a))
  (call $tensor/tensor.drop (local.get $b))
  (call $handle))

;; A list of 1,024 times the same handle, at 65,536.
(func $list (param $handle i32)
  (local $at i32)
  (local.set $at (i32.const 65536))
  (loop $more
    (i32.store (local.get $at) (local.get $handle))
    (br_if $more (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 4))) (i32.const 69632)))))

;; Calls `$more` until the host ends the method. In a flood of a graph, `$more` returns what is added to the sum.
(func $step (param $batch i32) (result i32)
  (local $sum i32)
  (call $begin (local.get $batch))
  (local.set $sum (call $more))
  (loop $again
    (local.set $sum (call $kept (local.get $sum) (call $more)))
    (br $again))
  (unreachable))
(global $one (mut i32) (i32.const 0))
(global $two (mut i32) (i32.const 0))
