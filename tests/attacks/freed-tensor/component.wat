;; Uses a tensor after the scope that it was made in.
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (local $scope i32)
  (local.set $scope (call $tensor/scope.new))
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $tensor/scope.drop (local.get $scope))
  (call $tensor/tensor.negate (call $handle) (i32.const 64))
  (call $done))
