UPDATE accounts
   SET version = version + 1, token = :token
 WHERE id = :account AND token <= :token
